"""Which of the two variable layouts a configuration asks for."""

from modeling import AlbertModel
from modeling_google import GoogleAlbertModel


def model_class(config):
  """Returns the class of models in the layout of `config`."""
  return GoogleAlbertModel if config.layout == "google" else AlbertModel


def create_model(config, *args, **kwargs):
  """Returns an AlbertModel in the layout of `config`; arguments as there."""
  return model_class(config)(config, *args, **kwargs)
