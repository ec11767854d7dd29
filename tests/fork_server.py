"""Python scripts without the seconds that importing TensorFlow takes.

`start` makes a program `python`. What it runs is a fork of a server that has
imported TensorFlow and loaded jieba's dictionary: a process of its own, with
the caller's arguments, folder, environment and standard streams.
"""

import atexit
import gc
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import traceback
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
  """Starts a server and writes its `python`.

  Args:
    folder: pathlib.Path, for `python`; it is made.
    more_arguments: dict, name of a script -> list of str, arguments to append.

  Returns:
    subprocess.Popen of the server; kill its process group in the end.
  """
  folder.mkdir()
  address = str(folder / "socket")
  client = folder / "python"
  client.write_text(
      _CLIENT % (sys.executable, json.dumps(more_arguments), address))
  client.chmod(0o755)
  server = subprocess.Popen([sys.executable, __file__, address],
                            stdout=subprocess.PIPE, start_new_session=True)
  server.stdout.readline()  # it listens
  return server


def _serve(address):
  """Answers clients; returns a script's path in the process to run it in."""
  with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(address)
    listener.listen(8)
    print("ready", flush=True)
    while True:
      connection, _ = listener.accept()
      if not os.fork():
        return _run(connection)
      connection.close()
      os.waitpid(-1, os.WNOHANG)  # one that has ended


def _run(connection):
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
  return sys.argv[0]


def save_time():
  """Leaves out much of what a short training spends its time on.

  That is Grappler, as small graphs run no faster for it, unless a session's
  options say how to rewrite, and graph.pbtxt. Scripts with a Python of their
  own have both.
  """
  from tensorflow.compat.v1 import ConfigProto
  from tensorflow.python.client.session import BaseSession
  from tensorflow.python.training import training_util
  init = BaseSession.__init__

  def init_without(session, target="", graph=None, config=None):
    config = config or ConfigProto()
    if not config.graph_options.HasField("rewrite_options"):
      config.graph_options.rewrite_options.disable_meta_optimizer = True
    init(session, target, graph, config)

  BaseSession.__init__ = init_without
  training_util.write_graph = lambda *args, **kwargs: None


def _run_script(path):
  """Runs it, without the time that Python takes to take TensorFlow apart."""
  status = 0
  try:
    runpy.run_path(path, run_name="__main__")
  except SystemExit as end:
    status = end.code or 0
    if isinstance(status, str):
      print(status, file=sys.stderr)
      status = 1
  except Exception:
    traceback.print_exc()
    status = 1
  threading._shutdown()
  atexit._run_exitfuncs()
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(status)


if __name__ == "__main__":
  import jieba
  import sentencepiece  # noqa: F401
  import tensorflow.compat.v1 as tf

  _ = tf.estimator.tpu, tf.layers, tf.lite  # loaded at first use
  save_time()
  jieba.initialize()
  gc.freeze()  # a collection would copy all this memory into the process
  _run_script(_serve(sys.argv[1]))
