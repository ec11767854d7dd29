"""Services of stand-ins for models."""

import contextlib

import pytest
from live_service import live

from albert.serving.service import ServiceSettings, create_app


@pytest.fixture
def serve():
  """A function that starts a service, until the end of the test.

  It is a function of what `create_app` takes; `own` is a dict. It returns the
  client; see live_service.client.
  """
  with contextlib.ExitStack() as stack:
    yield lambda models, own=None, **kwargs: stack.enter_context(live(
        create_app(models, ServiceSettings(**own or {}), **kwargs)))
