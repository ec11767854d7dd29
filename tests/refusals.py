"""What is refused."""

import pytest

from albert.errors import InputError


def refused(message, function, *args, **kwargs):
  """Asserts that a call ends in an InputError that matches `message`."""
  with pytest.raises(InputError, match=message):
    function(*args, **kwargs)
