"""create_pretraining_data.py as an Apache Beam pipeline, for a cluster.

    python create_pretraining_data_beam.py --runner=FlinkRunner \
      --pipeline_options='--flink_master=host:8081' --input_file=... \
      --output_dir=... --vocab_file=...

It makes the records that create_pretraining_data.py makes with the same flags,
in a different order. Text, user dictionary and output must be on a file system
that all workers see, and this folder must be on their Python path. Needs
requirements/beam.txt.
"""

import collections
import os
import shlex

import apache_beam as beam
import jieba
import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags
from apache_beam.options.pipeline_options import PipelineOptions

import create_pretraining_data as data
import tokenization
from albert.tasks import corpus, shards
from albert.util import errors, filesystem, records

FLAGS = flags.FLAGS
data.define_flags()
flags.adopt_module_key_flags(data)

flags.DEFINE_string("runner", "DirectRunner", "Beam's runner.")
flags.DEFINE_string("pipeline_options", "", "Further options of the runner.")


class MakeRecords(beam.DoFn):
  """Turns (shard index, documents) into (bucket, serialized record) pairs."""

  def __init__(self, segmenter, settings, num_buckets, user_dict):
    self._maker = shards.ShardMaker(segmenter, settings, num_buckets)
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


def main():
  errors.require_flags("input_file", "output_dir")
  paths = records.expand_patterns(FLAGS.input_file, "input_file")
  tokenizer = tokenization.create_tokenizer(
      FLAGS.vocab_file, FLAGS.spm_model_file, FLAGS.do_lower_case)
  settings = data.create_settings(FLAGS, tokenizer)
  make_records = MakeRecords(
      data.create_segmenter(FLAGS, tokenizer), settings, shards.count_buckets(
          sum(tf.io.gfile.stat(path).length for path in paths), settings,
          FLAGS.num_output_shards), FLAGS.user_dict)
  options = PipelineOptions(
      shlex.split(FLAGS.pipeline_options), runner=FLAGS.runner)
  reader = corpus.TextReader(paths, FLAGS.shard_characters)
  with beam.Pipeline(options=options) as pipeline:
    _ = (pipeline
         | beam.Create([reader])
         | beam.FlatMap(lambda reader: enumerate(reader.shards()))
         | beam.Reshuffle()
         | beam.ParDo(make_records)
         | beam.GroupByKey()
         | beam.FlatMap(shuffled, settings.random_seed)
         | beam.io.WriteToTFRecord(
             os.path.join(FLAGS.output_dir, "part"),
             file_name_suffix=".tfrecord", num_shards=FLAGS.num_output_shards))


if __name__ == "__main__":
  errors.run(main)
