"""Services of stand-ins for models."""

import contextlib

import pytest
from live_service import live

from albert.serving.service import ServiceSettings, create_app


@pytest.fixture
def serve():
  """A function of what `create_app` takes, `own` a dict, that starts a service
  until the end of the test; returns a live_service.client."""
  with contextlib.ExitStack() as stack:
    yield lambda models, own=None, **kwargs: stack.enter_context(live(
        create_app(models, ServiceSettings(**own or {}), **kwargs)))
