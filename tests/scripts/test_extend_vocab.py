"""extend_vocab.py: what words change, and what they leave as it was."""

import json

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from scripting import ROOT, fail, succeed
from small_models import albert_zh_config, google_config, write_folder
from test_sentencepiece import spm_file  # noqa: F401

import extend_vocab
import tokenization
from albert.errors import InputError
from albert.files import checkpoints
from albert.model.config import AlbertConfig
from albert.model.layouts import create_model

pytestmark = pytest.mark.slow

PIECES = ["[PAD]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]",
          "[MASK]"] + list("我爱中国的首都是北京上海很大，c") + [
              "play", "##ing", "##s"]
CONFIGS = {"albert_zh": albert_zh_config, "google": google_config}
TABLE, BIAS = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"


def extend(source, target, words, *flags):
  path = target.parent / "words.txt"
  path.write_text(words, encoding="utf-8")
  return succeed("extend_vocab.py", "--words_file=%s" % path,
                 "--init_checkpoint=%s" % source, "--output_dir=%s" % target,
                 *flags)


@pytest.fixture(params=sorted(CONFIGS))
def model(request, tmp_path):
  """(folder, weights) of a small model, as training leaves it."""
  folder = tmp_path / "model"
  folder.mkdir()
  config = CONFIGS[request.param](vocab_size=len(PIECES))
  write_folder(folder, config, PIECES)
  weights = checkpoints.read_weights(str(folder / "model.ckpt-7"))
  slots = {TABLE + "/adam_m": weights[TABLE], "global_step": np.int64(7)}
  checkpoints.write_checkpoint(str(folder), "model.ckpt-7",
                               dict(weights, **slots))
  (folder / "task.json").write_text('{"max_seq_length": 9}')
  return folder, weights


@pytest.mark.parametrize("use_unused", [False, True])
def test_rows_of_new_words(model, use_unused, tmp_path):
  folder, old = model
  target = tmp_path / "out"
  extend(folder, target, "中国\n\n 首都是 \r\nPlayS\n很大q",
         *["--use_unused"] * use_unused)
  size = len(PIECES)
  ids = [1, 2, size, size + 1] if use_unused else list(range(size, size + 4))
  tokenizer = tokenization.WordPieceTokenizer(str(target / "vocab.txt"))
  assert tokenizer.convert_ids_to_tokens(ids) == [
      "中国", "首都是", "plays", "很大q"]
  assert tokenizer.vocab_size == max(ids) + 1
  config = json.loads((target / "config.json").read_text())
  assert config["vocab_size"] == max(ids) + 1
  assert json.loads((target / "task.json").read_text()) == {
      "max_seq_length": 9, "do_lower_case": True}

  new = {name: tf.train.load_variable(str(target / "model.ckpt-7"), name)
         for name, _ in tf.train.list_variables(str(target / "model.ckpt-7"))}
  assert set(new) == set(old)  # no optimizer's
  # There is no q.
  rows = [list(map(PIECES.index, word)) for word in (
      "中国", "首都是", ["play", "##s"], "很大")]
  for number, row in zip(ids, rows):
    np.testing.assert_allclose(
        new[TABLE][number], sum(old[TABLE][i] for i in row) / len(row),
        rtol=0, atol=1e-6)
    assert new[BIAS][number] == min(old[BIAS][i] for i in row)
  for name in (TABLE, BIAS):
    kept = np.setdiff1d(np.arange(len(PIECES)), ids)
    np.testing.assert_array_equal(new[name][kept], old[name][kept])
  for name in set(old) - {TABLE, BIAS}:
    np.testing.assert_array_equal(new[name], old[name])


def outputs(folder, texts):
  """Returns what a folder's model makes of texts: ids, vectors, logits."""
  tokenizer = tokenization.WordPieceTokenizer(str(folder / "vocab.txt"))
  config = AlbertConfig.from_json_file(str(folder / "config.json"))
  ids = [tokenization.encode_texts(tokenizer, text, None, 32)[0]
         for text in texts]
  longest = max(map(len, ids))
  ids = [row + [0] * (longest - len(row)) for row in ids]
  with tf.Graph().as_default():
    input_ids = tf.constant(ids, tf.int32)
    model = create_model(config, False, input_ids, tf.sign(input_ids))
    found = [model.get_sequence_output(), model.get_pooled_output(),
             model.masked_lm_logits(tf.constant([[1, 3]] * len(ids)))]
    model.sentence_order_logits()
    with checkpoints.restored_session(
        checkpoints.find_checkpoint(str(folder))) as session:
      return ids, session.run(found)


@pytest.mark.both
@pytest.mark.parametrize("layout", ["albert_zh", "google"])
def test_a_table_of_released_size(layout, tmp_path):
  """Text without the words: the same ids, vectors, logits of old tokens."""
  starter = ROOT / "albert_tiny_starter"
  folder, target = starter, tmp_path / "out"
  if layout == "albert_zh":
    folder = tmp_path / "model"
    folder.mkdir()
    write_folder(folder, AlbertConfig.from_json_file(str(
        ROOT / "albert_config" / "albert_config_tiny.json")).to_dict(),
                 (starter / "vocab.txt").read_text(encoding="utf-8").split(
                     "\n")[:-1])
  extend(folder, target, "操作系统\n服务器\n维生素C\nchroot\n")
  texts = ["我[MASK]知道他在哪里。", "操作很简单，Change the root. [MASK]系统"]
  old_ids, old = outputs(folder, texts)
  new_ids, new = outputs(target, texts)
  assert new_ids == old_ids
  assert new[2].shape[-1] == old[2].shape[-1] + 4 == 21132
  for one, other in zip(old[:2], new[:2]):
    np.testing.assert_allclose(other, one, rtol=0, atol=1e-6)
  # A table of another size is multiplied in another order.
  np.testing.assert_allclose(new[2][:, :21128], old[2], rtol=1e-6, atol=1e-6)
  ids, _ = outputs(target, ["服务器的操作系统：chroot维生素C"])
  assert ids == [[101, 21129, 4638, 21128, 8038, 21131, 21130, 102]]


def test_training_goes_on(tmp_path):
  """Records with the words, pretraining, masks; transformers, and back."""
  target, records = tmp_path / "out", tmp_path / "records"
  folder = tmp_path / "model"
  folder.mkdir()
  config = google_config(vocab_size=21128, max_position_embeddings=64)
  vocabulary = (ROOT / "albert_config" / "vocab.txt").read_text(
      encoding="utf-8").split("\n")[:-1]
  write_folder(folder, config, vocabulary)
  extend(folder, target, "充电宝\n他一\n小周\n")
  succeed("create_pretraining_data.py", "--max_seq_length=64",
          "--vocab_file=%s" % (target / "vocab.txt"), "--dupe_factor=1",
          "--max_predictions_per_seq=10", "--output_file=%s" % records,
          "--input_file=%s" % (ROOT / "data" / "text_train.txt"))
  succeed("run_pretraining.py", "--do_train", "--input_file=%s" % records,
          "--init_checkpoint=%s" % target, "--num_train_steps=2",
          "--num_warmup_steps=1", "--train_batch_size=8",
          "--output_dir=%s" % (tmp_path / "trained"))
  out, _ = succeed("predict_masked.py", "小周借了[MASK]。", "--top_k=21131",
                   "--model_dir=%s" % (tmp_path / "trained"))
  assert {"充电宝", "他一", "小周"} < {
      choice.split(" ")[0] for choice in out.strip().split("\t")}
  for source, flag, name in ((target, "init_checkpoint", "there"),
                             (tmp_path / "there", "pytorch_dir", "back")):
    succeed("convert_to_pytorch.py", "--%s=%s" % (flag, source),
            "--output_dir=%s" % (tmp_path / name))
  assert (tmp_path / "back" / "vocab.txt").read_bytes() == (
      target / "vocab.txt").read_bytes()
  weights, again = [checkpoints.read_weights(checkpoints.find_checkpoint(
      str(path))) for path in (target, tmp_path / "back")]
  assert set(weights) == set(again)
  for name, value in weights.items():
    np.testing.assert_array_equal(again[name], value)


@pytest.mark.parametrize("words, message", [
  ("\n \n", "words.txt: has no words"),
  ("中国\n我\n", "words.txt:2: '我' is in the vocabulary already"),
  ("PLAY", "words.txt:1: 'PLAY' is in the vocabulary already"),
  ("中 国", "words.txt:1: '中 国' has a space: write one word a line"),
  ("中国\n北京\n中国", "words.txt:3: '中国' is on line 1 already"),
  ("[MASK]", r"'\[MASK\]' is a special token"),
  ("[unused1]", r"'\[unused1\]' is in the vocabulary already"),
  ("中国\n猫狗", "words.txt:2: '猫狗' has no piece in the vocabulary to"),
])
def test_bad_words(words, message, tmp_path):
  for name, text in (("words", words), ("vocab", "\n".join(PIECES))):
    (tmp_path / (name + ".txt")).write_text(text, encoding="utf-8")
  with pytest.raises(InputError, match=message):
    extend_vocab.read_words(
        str(tmp_path / "words.txt"),
        tokenization.WordPieceTokenizer(str(tmp_path / "vocab.txt")))


def test_bad_input(tmp_path):
  write_folder(tmp_path, google_config(vocab_size=len(PIECES)), PIECES)
  path, target = tmp_path / "words.txt", tmp_path / "out"

  def fails(words, message):
    path.write_text(words, encoding="utf-8")
    fail(message, "extend_vocab.py", "--words_file=%s" % path,
         "--init_checkpoint=%s" % tmp_path, "--output_dir=%s" % target)
    assert not list(tmp_path.glob("*.tmp"))

  fails("中国\nplay，", "'play，' would not be found in a text")
  assert not target.exists()
  target.mkdir()
  fails("中国", "out exists already")


def test_sentencepiece_is_refused(spm_file, tmp_path):  # noqa: F811
  config = google_config(vocab_size=tokenization.SentencePieceTokenizer(
      spm_file).vocab_size)
  write_folder(tmp_path, config, spm_file)
  (tmp_path / "words.txt").write_text("dogcat")
  fail("spm.model: words can be added to WordPiece vocabularies, not to a",
       "extend_vocab.py", "--words_file=%s" % (tmp_path / "words.txt"),
       "--init_checkpoint=%s" % tmp_path, "--output_dir=%s" % (
           tmp_path / "out"))
