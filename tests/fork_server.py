"""Python scripts without the seconds that importing TensorFlow takes.

`start` makes a program `python`. What it runs is a fork of a server that has
imported TensorFlow and loaded jieba's dictionary.
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

  `folder`, a pathlib.Path, is made; `more_arguments` is a dict, name of a
  script -> list of str, arguments to append. Returns its subprocess.Popen,
  which has a process group of its own.
  """
  folder.mkdir()
  address = str(folder / "socket")
  (folder / "python").write_text(
      _CLIENT % (sys.executable, json.dumps(more_arguments), address))
  (folder / "python").chmod(0o755)
  server = subprocess.Popen(
      [sys.executable, __file__, address], stdin=subprocess.PIPE,
      stdout=subprocess.PIPE, start_new_session=True)
  server.stdout.readline()  # it listens
  return server


def _serve(address):
  """Answers clients; returns, in a process of its own, to run a script."""
  with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(address)
    listener.listen(8)
    print("ready", flush=True)
    while True:
      if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
        sys.exit()  # what started the server is gone
      connection, _ = listener.accept()
      if not os.fork():
        break
      connection.close()
      os.waitpid(-1, os.WNOHANG)  # one that has ended
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

  _ = tf.estimator.tpu, tf.layers, tf.lite  # loaded at first use
  jieba.initialize()
  gc.freeze()  # a collection would copy all this memory into the process
  _serve(sys.argv[1])
  runpy.run_path(sys.argv[0], run_name="__main__")
