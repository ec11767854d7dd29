"""Text that is not in the vocabulary: its share is said, and warned of."""

import json

import pytest
import scripting
from scripting import VOCAB, succeed

pytestmark = [pytest.mark.slow, pytest.mark.once]

# 15 tokens each.
KNOWN = "今天天气很好，我们去公园散步。"
UNKNOWN = "𠮷𠮷天气很好，我们去公园散步。"
WARNING = "% of the tokens of {} are [UNK]: its words are not in the vocabulary"


@pytest.mark.parametrize("unknown_lines, share", [(0, 0), (1, 0.67), (3, 2)])
def test_of_records(unknown_lines, share, tmp_path):
  lines = [UNKNOWN] * unknown_lines + [KNOWN] * (20 - unknown_lines)
  path = tmp_path / "in.txt"
  path.write_text("\n".join(lines) + "\n", encoding="utf-8")
  _, log = succeed(
      "create_pretraining_data.py", VOCAB, "--input_file=%s" % path,
      "--output_file=%s" % path.with_suffix(".tfrecord"),
      "--max_seq_length=64", "--dupe_factor=2")
  assert "unknown tokens  %d, %.3f%%, [UNK]" % (
      2 * unknown_lines, 200 * unknown_lines / 300) in log
  assert (WARNING.format("the text") in log) == (share > 1)


def test_of_a_task(tmp_path):
  (tmp_path / "small.json").write_text(json.dumps(scripting.SIZES))
  for name, text in (("train", UNKNOWN), ("dev", KNOWN)):
    (tmp_path / (name + ".tsv")).write_text("text_a\tlabel\n" + "".join(
        "%s\t%d\n" % (text, i % 2) for i in range(8)), encoding="utf-8")
  _, log = succeed(
      "run_classifier.py", "--task_name=tsv", VOCAB, "--do_train", "--do_eval",
      "--data_dir=%s" % tmp_path, "--output_dir=%s" % (tmp_path / "out"),
      "--bert_config_file=%s" % (tmp_path / "small.json"),
      "--max_seq_length=32", "--train_batch_size=8", "--num_train_epochs=1")
  # Two of 15 tokens and [CLS], [SEP].
  assert "fill --max_seq_length=32; %.2f%% of the tokens are [UNK]" % (
      200 / 17) in log
  assert "11.8" + WARNING.format("train") in log
  assert WARNING.format("dev") not in log
