"""Assertions about errors."""

import pytest

from albert.errors import InputError


def refused(message, function, *args, **kwargs):
  """Asserts that a call raises an InputError that matches `message`."""
  with pytest.raises(InputError, match=message):
    function(*args, **kwargs)
