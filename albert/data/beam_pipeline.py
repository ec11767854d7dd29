"""Makes pretraining records in an Apache Beam pipeline, on a cluster.

Needs: pip install '.[beam]'. Text, user dictionary and output must be on a file
system that all workers can access, and the project on their Python path.
"""

import collections
import os
import shlex
from typing import Optional

import apache_beam as beam
import jieba
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from albert.data.corpus import TextReader
from albert.data.shards import ShardMaker
from albert.errors import InputError
from albert.files import filesystem


class MakeRecords(beam.DoFn):
  """Maps (shard index, documents) to (bucket, serialized record) pairs.

  Args:
    maker: makes the records.
    user_dict: path of a dictionary in jieba's format, or None.
  """

  def __init__(self, maker: ShardMaker, user_dict: Optional[str]):
    self._maker = maker
    self._user_dict = user_dict

  def setup(self) -> None:
    if self._user_dict:
      with filesystem.open_binary(self._user_dict) as reader:
        jieba.load_userdict(reader)

  # No annotations: they would change Beam's coders.
  def process(self, shard):
    shard_index, texts = shard
    made, buckets = self._maker.serialized_records(
      texts, shard_index, collections.Counter()
    )
    return zip(buckets.tolist(), made)


# No annotations: they would change Beam's coders.
def shuffled(bucket, seed):
  """Returns the records of (bucket, records) in random order."""
  number, unordered = bucket
  made = sorted(unordered)  # Beam's order is not deterministic
  np.random.RandomState([seed, number]).shuffle(made)
  return made


def run(
  runner: str,
  options: str,
  reader: TextReader,
  make_records: MakeRecords,
  seed: int,
  output_dir: str,
  num_outputs: int,
) -> None:
  """Makes the same records as shards.make_shards, in a different order.

  Args:
    runner: name of a Beam runner, such as "DirectRunner".
    options: additional options of the runner, as on the command line.
    reader: reads the text.
    make_records: makes the records.
    seed: seed of the order.
    output_dir: folder of the record files.
    num_outputs: number of record files to write.

  Raises:
    InputError: unknown runner.
  """
  try:
    pipeline = beam.Pipeline(
      options=PipelineOptions(["--runner=" + runner, *shlex.split(options)])
    )
  except ValueError as error:
    raise InputError("--beam_runner, --beam_options: %s" % error) from error
  with pipeline:
    _ = (
      pipeline
      | beam.Create([reader])
      | beam.FlatMap(lambda reader: enumerate(reader.shards()))
      | beam.Reshuffle()
      | beam.ParDo(make_records)
      | beam.GroupByKey()
      | beam.FlatMap(shuffled, seed)
      | beam.io.WriteToTFRecord(
        os.path.join(output_dir, "part"),
        file_name_suffix=".tfrecord",
        num_shards=num_outputs,
      )
    )
