"""The two variable layouts, chosen by the configuration."""

from typing import Any, Type

from albert.model.config import AlbertConfig
from modeling import AlbertModel
from modeling_google import GoogleAlbertModel


def model_class(config: AlbertConfig) -> Type[AlbertModel]:
  """Returns the model class for the layout of `config`."""
  return GoogleAlbertModel if config.layout == "google" else AlbertModel


def create_model(
  config: AlbertConfig, *args: Any, **kwargs: Any
) -> AlbertModel:
  """Builds a model in the layout of `config`; arguments as in AlbertModel."""
  return model_class(config)(config, *args, **kwargs)
