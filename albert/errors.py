"""The exception for errors that users can fix."""


class InputError(ValueError):
  """Invalid input; the message is one line: what, where and what to do."""
