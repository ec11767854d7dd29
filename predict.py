"""Predicts with a model of any task; see albert/predict/command.py."""

from albert.predict import command

if __name__ == "__main__":
  command.run()
