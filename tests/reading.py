"""Readers of output files."""

import json

import tensorflow.compat.v1 as tf


def table(path):
  return [
    line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()
  ]


def read_json(path):
  return json.loads(path.read_text(encoding="utf-8"))


def json_lines(path):
  return list(map(json.loads, path.read_text(encoding="utf-8").splitlines()))


def features(path):
  """Returns the features of each record, dicts of lists."""
  return [
    {
      name: list(getattr(x, x.WhichOneof("kind")).value)
      for name, x in tf.train.Example.FromString(
        record
      ).features.feature.items()
    }
    for record in tf.io.tf_record_iterator(str(path))
  ]
