"""The starter weights have the same losses in transformers."""

import pytest
import tensorflow.compat.v1 as tf
import torch
import transformers
from scripting import ROOT, VOCAB, results, succeed

pytestmark = pytest.mark.slow

STARTER = ROOT / "albert_tiny_starter"


def read(records):
  """Yields the examples of a record file: dict, name -> tensor [1, n]."""
  for record in tf.python_io.tf_record_iterator(str(records)):
    feature = tf.train.Example.FromString(record).features.feature
    yield {name: torch.tensor([list(
        value.int64_list.value or value.float_list.value)])
           for name, value in feature.items()}


def losses_in_transformers(records, folder):
  """Returns the mean losses (masked LM, sentence order) of a record file."""
  model = transformers.AlbertForPreTraining.from_pretrained(str(folder)).eval()
  masked_lm, weights, sentence_order = [], [], []
  with torch.no_grad():
    for example in read(records):
      output = model(input_ids=example["input_ids"],
                     attention_mask=example["input_mask"],
                     token_type_ids=example["segment_ids"])
      logits = output.prediction_logits[0, example["masked_lm_positions"][0]]
      masked_lm.append(torch.nn.functional.cross_entropy(
          logits, example["masked_lm_ids"][0], reduction="none"))
      weights.append(example["masked_lm_weights"][0])
      sentence_order.append(torch.nn.functional.cross_entropy(
          output.sop_logits, example["next_sentence_labels"][:, 0]))
  weights = torch.cat(weights)
  return ((torch.cat(masked_lm) * weights).sum() / weights.sum()).item(), (
      torch.stack(sentence_order).mean().item())


def test_losses(tmp_path):
  records = tmp_path / "heldout.tfrecord"
  succeed("create_pretraining_data.py", VOCAB, "--output_file=%s" % records,
          "--input_file=%s" % (ROOT / "data" / "text_heldout.txt"),
          "--max_seq_length=128", "--max_predictions_per_seq=19",
          "--masked_lm_prob=0.15", "--dupe_factor=1")
  succeed("run_pretraining.py", "--do_eval", "--input_file=%s" % records,
          "--init_checkpoint=%s" % STARTER, "--output_dir=%s" % tmp_path)
  succeed("convert_to_pytorch.py", "--init_checkpoint=%s" % STARTER,
          "--output_dir=%s" % (tmp_path / "pytorch"))
  masked_lm, sentence_order = losses_in_transformers(
      records, tmp_path / "pytorch")
  found = results(tmp_path)
  assert found["masked_lm_loss"] == pytest.approx(masked_lm, abs=1e-4)
  assert found["sentence_order_loss"] == pytest.approx(sentence_order, abs=1e-4)
