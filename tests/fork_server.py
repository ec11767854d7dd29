"""Runs Python scripts without the seconds it takes to import TensorFlow.

`start` writes a program `python` that runs scripts in forks of a server, which
has imported TensorFlow and loaded jieba's dictionary.
"""

import gc
import json
import os
import runpy
import select
import socket
import subprocess
import sys
from multiprocessing.reduction import recvfds

_CLIENT = """#!%s
import json, os, socket, sys
from multiprocessing.reduction import sendfds
if sys.argv[1].startswith("-"):  # no script
  os.execv(sys.executable, [sys.executable] + sys.argv[1:])
more = json.loads(%r)
argv = sys.argv[1:] + more.get(os.path.basename(sys.argv[1]), [])
with socket.socket(socket.AF_UNIX) as connection:
  connection.connect(%r)
  sendfds(connection, [0, 1, 2])
  connection.sendall(json.dumps([argv, os.getcwd(), dict(os.environ)]).encode())
  connection.shutdown(socket.SHUT_WR)
  sys.exit(int(connection.recv(8)))
"""


def start(folder, more_arguments):
  """Starts a server, which ends with this process, and writes its `python`.

  `folder`: pathlib.Path, is created; `more_arguments`: dict, script name ->
  list of str to append. Returns the server's subprocess.Popen, in a new process
  group.
  """
  folder.mkdir()
  address = str(folder / "socket")
  (folder / "python").write_text(
    _CLIENT % (sys.executable, json.dumps(more_arguments), address)
  )
  (folder / "python").chmod(0o755)
  server = subprocess.Popen(
    [sys.executable, __file__, address],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    start_new_session=True,
  )
  server.stdout.readline()  # wait until it listens
  return server


def _serve(address):
  """Serves clients; returns in a fork, which then runs the script."""
  with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(address)
    listener.listen(8)
    print("ready", flush=True)
    while True:
      if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
        sys.exit()  # the parent is gone
      connection, _ = listener.accept()
      if not os.fork():
        break
      connection.close()
      os.waitpid(-1, os.WNOHANG)  # reap a finished child
  streams = recvfds(connection, 3)
  sys.argv, folder, environment = json.loads(connection.makefile().read())
  process = os.fork()
  if process:
    _, status = os.waitpid(process, 0)
    connection.sendall(b"%d" % (os.WEXITSTATUS(status) or os.WTERMSIG(status)))
    os._exit(0)
  connection.close()
  for number, stream in enumerate(streams):
    os.dup2(stream, number)
    os.close(stream)
  os.chdir(folder)
  os.environ.clear()
  os.environ.update(environment)
  sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))


if __name__ == "__main__":
  import jieba
  import sentencepiece  # noqa: F401
  import tensorflow.compat.v1 as tf

  _ = tf.estimator.tpu, tf.layers, tf.lite  # loaded lazily
  jieba.initialize()
  gc.freeze()  # a collection would copy this memory into each fork
  _serve(sys.argv[1])
  runpy.run_path(sys.argv[0], run_name="__main__")
