"""Serves models over HTTP; see albert/serving/command.py."""

from albert.serving import command

if __name__ == "__main__":
  command.run()
