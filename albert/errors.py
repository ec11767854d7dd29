"""The one kind of error a user can cause."""


class InputError(ValueError):
  """Bad input: the message says what, where and what to do, in one line."""
