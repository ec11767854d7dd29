"""Makes pretraining records by an Apache Beam pipeline, on a cluster.

Needs: pip install '.[beam]'. Text, user dictionary and output must be on a file
system that all workers see, and the project on their Python path.
"""

import collections
import os
import shlex

import apache_beam as beam
import jieba
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from albert.errors import InputError
from albert.files import filesystem


class MakeRecords(beam.DoFn):
  """Turns (shard index, documents) into (bucket, serialized record) pairs.

  Args:
    maker: shards.ShardMaker.
    user_dict: str, path of a file in jieba's format, or None.
  """

  def __init__(self, maker, user_dict):
    self._maker = maker
    self._user_dict = user_dict

  def setup(self):
    if self._user_dict:
      with filesystem.open_binary(self._user_dict) as reader:
        jieba.load_userdict(reader)

  def process(self, shard):
    shard_index, texts = shard
    made, buckets = self._maker.serialized_records(texts, shard_index,
                                                   collections.Counter())
    return zip(buckets.tolist(), made)


def shuffled(bucket, seed):
  """Returns the records of (bucket, records) in random order."""
  number, made = bucket
  made = sorted(made)  # they come in any order
  np.random.RandomState([seed, number]).shuffle(made)
  return made


def run(runner, options, reader, make_records, seed, output_dir, num_outputs):
  """Makes the records that shards.make_shards makes, in a different order.

  Args:
    runner: str, Beam's, such as "DirectRunner".
    options: str, further options of the runner, as on a command line.
    reader: corpus.TextReader.
    make_records: MakeRecords.
    seed: int, of the order.
    output_dir: str.
    num_outputs: int, record files to write.

  Raises:
    InputError: Beam does not know the runner.
  """
  try:
    pipeline = beam.Pipeline(options=PipelineOptions(
        shlex.split(options), runner=runner))
  except ValueError as error:
    raise InputError("--beam_runner, --beam_options: %s" % error) from error
  with pipeline:
    _ = (pipeline
         | beam.Create([reader])
         | beam.FlatMap(lambda reader: enumerate(reader.shards()))
         | beam.Reshuffle()
         | beam.ParDo(make_records)
         | beam.GroupByKey()
         | beam.FlatMap(shuffled, seed)
         | beam.io.WriteToTFRecord(
             os.path.join(output_dir, "part"), file_name_suffix=".tfrecord",
             num_shards=num_outputs))
