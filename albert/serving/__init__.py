"""Models over HTTP; serve.py is the command."""
