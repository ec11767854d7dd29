"""TensorFlow backend: a checkpoint in a session; see engine.py.

Tests: tests/scripts/test_similarity.py.
"""

import os
from typing import List, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from albert import heads, model_folder
from albert.errors import InputError
from albert.files import checkpoints, filesystem
from albert.heads.signatures import build_signature
from albert.predict.engine import Engine, TextPredictor, missing


class TensorFlowEngine(Engine):
  """A checkpoint with its heads."""

  def __init__(self, path: str, given: model_folder.FolderSettings):
    self.folder = model_folder.load(given, path)
    self.tokenizer = self.folder.create_tokenizer()
    self._path = path
    self._checkpoint = self.folder.checkpoint
    self._heads = heads.restore(
      checkpoints.saved_shapes(self._checkpoint), self.folder
    )

  def predictor(
    self,
    signature: str,
    *outputs: str,
    max_seq_length: Optional[int] = None,
    batch_size: int = 64,
  ) -> TextPredictor:
    """See Engine."""
    return TextPredictor(
      self._call(signature, outputs),
      self.tokenizer,
      self.folder.length(max_seq_length),
      batch_size,
    )

  def constant(self, signature: str, output: str) -> np.ndarray:
    """See Engine."""
    call = self._call(signature, [output])
    return call(*[np.ones([1, 2], np.int32)] * 3)[0]

  def weight_files(self) -> List[str]:
    """See Engine."""
    folder, name = os.path.split(self._checkpoint)
    return [
      path
      for path in filesystem.find_files(folder or ".", "*")
      if os.path.basename(path).startswith((name + ".index", name + ".data-"))
    ]

  def _call(self, signature, outputs):
    if signature not in self._heads:
      raise missing(self._path, signature)
    with tf.Graph().as_default():
      built = build_signature(self.folder.config, self._heads[signature])
      for name in outputs:
        if name not in built.outputs:
          raise InputError("%s has no output %s" % (self._path, name))
      session = checkpoints.restored_session(self._checkpoint)
      return session.make_callable(
        [built.outputs[name] for name in outputs], list(built.inputs.values())
      )
