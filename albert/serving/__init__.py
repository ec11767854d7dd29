"""Models behind HTTP; serve.py is the command."""
