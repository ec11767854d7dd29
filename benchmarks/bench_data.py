"""Speed and memory of create_pretraining_data.py, compared with jieba alone.

    python benchmarks/bench_data.py --input_file=text.txt

J: seconds of single-threaded `jieba.lcut` over the same lines.
W: wall seconds of the tool, including start-up.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from typing import Dict

import jieba
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_string("input_file", None, "Text.", required=True)
flags.DEFINE_integer("num_workers", 2, "Processes of the tool.")
flags.DEFINE_bool("skip_jieba", False, "Measure the tool only.")
flags.DEFINE_bool("without_rjieba", False, "Hide rjieba.")

_HIDE = (
  "import runpy, sys; sys.modules['rjieba'] = None; sys.argv.pop(0); "
  "runpy.run_path(sys.argv[0], run_name='__main__')"
)
ROOT = pathlib.Path(__file__).resolve().parent.parent


def seconds_of_jieba(path: str) -> float:
  """Returns J, including loading the dictionary but not reading the file."""
  with open(path, encoding="utf-8") as reader:
    lines = reader.read().splitlines()
  jieba.setLogLevel("WARNING")
  start = time.time()
  for line in lines:
    jieba.lcut(line)
  return time.time() - start


def peak_memory(process: subprocess.Popen, peaks: Dict[int, float]) -> None:
  """Records VmHWM, in MB, of a process and its children until it ends."""
  while process.poll() is None:
    pids = [process.pid]
    children = "/proc/%d/task/%d/children" % (process.pid, process.pid)
    try:
      with open(children) as reader:
        pids += map(int, reader.read().split())
    except OSError:
      pass
    for pid in pids:
      try:
        with open("/proc/%d/status" % pid) as reader:
          peaks.update(
            (pid, int(line.split()[1]) / 1024)
            for line in reader
            if line.startswith("VmHWM")
          )
      except OSError:
        pass
    time.sleep(0.1)


def main(argv):
  del argv
  with tempfile.TemporaryDirectory() as folder:
    peaks = {}
    start = time.time()
    process = subprocess.Popen(
      [
        sys.executable,
        *(["-c", _HIDE] if FLAGS.without_rjieba else []),
        str(ROOT / "create_pretraining_data.py"),
        "--input_file=%s" % os.path.abspath(FLAGS.input_file),
        "--output_file=%s/records" % folder,
        "--vocab_file=%s" % (ROOT / "albert_config" / "vocab.txt"),
        "--max_seq_length=512",
        "--max_predictions_per_seq=51",
        "--dupe_factor=5",
        "--masking=word",
        "--num_workers=%d" % FLAGS.num_workers,
      ],
      stderr=subprocess.PIPE,
      cwd=str(ROOT),
    )
    watcher = threading.Thread(target=peak_memory, args=(process, peaks))
    watcher.start()
    log = process.communicate()[1].decode()
    wall = time.time() - start
    watcher.join()
    if process.returncode:
      sys.exit(log)
    size = os.path.getsize(folder + "/records")
    digest = hashlib.sha256(pathlib.Path(folder, "records").read_bytes())
  print("\n".join(log.splitlines()[-9:]))
  made = [line for line in log.splitlines() if " records  " in line][0]
  made = int(made.split("records")[1].split(",")[0])
  print(
    "text %.1f MB, records %.1f MB"
    % (os.path.getsize(FLAGS.input_file) / 1e6, size / 1e6)
  )
  print("sha256 of the records", digest.hexdigest())
  print(
    "W = %.1f s with %d workers, %.0f records/s"
    % (wall, FLAGS.num_workers, made / wall)
  )
  print(
    "peak resident memory, MB: main %.0f, workers %s"
    % (peaks.pop(process.pid), ", ".join("%.0f" % p for p in peaks.values()))
  )
  if not FLAGS.skip_jieba:
    seconds = seconds_of_jieba(FLAGS.input_file)
    print("J = %.1f s, W / J = %.2f" % (seconds, wall / seconds))


if __name__ == "__main__":
  app.run(main)
