"""Adding words to a vocabulary: what changes and what stays."""

import pathlib

import numpy as np
import pytest
from reading import read_json
from reference_albert import softmax
from refusals import refused
from scripting import succeed
from small_models import albert_zh_config, google_config, write_folder
from writing import write

import tokenization
from albert.files import checkpoints
from albert.predict import load
from albert.vocab.extend import read_words

PIECES = [
  "[PAD]",
  "[unused1]",
  "[unused2]",
  "[UNK]",
  "[CLS]",
  "[SEP]",
  "[MASK]",
  *"我爱中国的首都是北京上海很大，c",
  "play",
  "##ing",
  "##s",
]
LENGTHS = ["--max_seq_length=24", "--max_predictions_per_seq=6"]
TABLE, BIAS = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"


def extend(source, target, words, *flags):
  succeed(
    "albert/vocab/extend.py",
    "--init_checkpoint=%s" % source,
    "--words_file=" + write(target.parent, "words.txt", words),
    "--output_dir=%s" % target,
    *flags,
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  "config, use_unused", [(albert_zh_config, False), (google_config, True)]
)
def test_rows_of_new_words(config, use_unused, tmp_path):
  folder, target = tmp_path / "model", tmp_path / "out"
  write_folder(folder, config(vocab_size=len(PIECES)), PIECES)
  old = checkpoints.read_weights(str(folder / "model.ckpt-7"))
  # As after training.
  checkpoints.write_checkpoint(
    str(folder),
    "model.ckpt-7",
    dict(old, **{TABLE + "/adam_m": old[TABLE], "global_step": np.int64(7)}),
  )
  (folder / "task.json").write_text('{"max_seq_length": 9}')
  extend(
    folder,
    target,
    "中国\n\n 首都是 \r\nPlayS\n很大q",
    *["--use_unused"] * use_unused,
  )
  ids = [1, 2] * use_unused
  ids += range(len(PIECES), len(PIECES) + 4 - len(ids))
  tokenizer = tokenization.WordPieceTokenizer(str(target / "vocab.txt"))
  assert tokenizer.convert_ids_to_tokens(ids) == [
    "中国",
    "首都是",
    "plays",
    "很大q",
  ]
  assert tokenizer.vocab_size == max(ids) + 1
  # Text without the words keeps its ids.
  assert [
    PIECES[i]
    for i in tokenizer.convert_tokens_to_ids(
      tokenizer.tokenize("我[MASK]playing很c")
    )
  ] == ["我", "[MASK]", "play", "##ing", "很", "c"]
  assert read_json(target / "config.json")["vocab_size"] == max(ids) + 1
  assert read_json(target / "task.json") == {
    "max_seq_length": 9,
    "do_lower_case": True,
  }
  new = checkpoints.read_all(str(target / "model.ckpt-7"))
  assert set(new) == set(old)  # no optimizer slots
  # The vocabulary has no q.
  for number, word in zip(ids, ("中国", "首都是", ["play", "##s"], "很大")):
    row = list(map(PIECES.index, word))
    np.testing.assert_allclose(
      new[TABLE][number], old[TABLE][row].mean(0), rtol=0, atol=1e-6
    )
    assert new[BIAS][number] == pytest.approx(
      old[BIAS][row].min() - np.log(4e4)
    )
  # For any vector, the four words together have almost no probability.
  logits = (
    np.random.RandomState(0)
    .normal(0, 9, [99, len(old[TABLE][0])])
    .dot(new[TABLE].T)
    + new[BIAS]
  )
  assert softmax(logits)[:, ids].sum(1).max() < 1e-4
  kept = np.setdiff1d(np.arange(len(PIECES)), ids)
  for name, weights in old.items():
    rows = kept if name in (TABLE, BIAS) else slice(None)
    np.testing.assert_array_equal(new[name][rows], weights[rows])


@pytest.mark.full
def test_training_raises_the_probability_of_words(tmp_path):
  """In 200 steps on text with the words, from almost zero."""
  folder, target, out = [tmp_path / name for name in ("model", "new", "out")]
  write_folder(
    folder,
    albert_zh_config(vocab_size=len(PIECES), max_position_embeddings=24),
    PIECES,
  )
  extend(folder, target, "首都是")
  records = "%s/records" % tmp_path
  succeed(
    "create_pretraining_data.py",
    "--output_file=" + records,
    *LENGTHS,
    "--vocab_file=%s/vocab.txt" % target,
    "--masked_lm_prob=0.3",
    "--input_file="
    + write(
      tmp_path, "text.txt", *["中国的首都是北京", "上海很大，我爱上海", ""] * 9
    ),
  )
  succeed(
    "run_pretraining.py",
    "--input_file=" + records,
    *LENGTHS,
    "--init_checkpoint=%s" % target,
    "--output_dir=%s" % out,
    "--do_train",
    "--num_train_steps=200",
    "--num_warmup_steps=20",
    "--train_batch_size=16",
    "--optimizer=adamw",
    "--learning_rate=3e-3",
  )

  def probability(folder):
    """Returns the probability of the word at the mask."""
    (found,) = load(str(folder)).predict(["中国的[MASK]北京"], len(PIECES))
    return dict(found.masks[0])["首都是"]

  assert probability(target) < 1e-4
  assert probability(out) > 0.5


@pytest.mark.parametrize(
  "words, message",
  [
    ("\n \n", "words.txt: has no words"),
    ("中国\n我\n", "words.txt:2: '我'"),
    ("PLAY", "words.txt:1: 'PLAY'"),
    ("中 国", "words.txt:1: '中 国' has a space"),
    ("中国\n北京\n中国", "words.txt:3: '中国' .*line 1"),
    ("[MASK]", r"'\[MASK\]' is a special token"),
    ("[unused1]", r"words.txt:1: '\[unused1\]'"),
    ("中国\n猫狗", "words.txt:2: '猫狗' has no piece"),
  ],
)
def test_bad_words(words, message, tmp_path):
  refused(
    message,
    read_words,
    write(tmp_path, "words.txt", words),
    tokenization.WordPieceTokenizer(write(tmp_path, "v.txt", *PIECES)),
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  "words, message, source, target",
  [
    ("中国\nplay，", "words.txt: 'play，'", "wordpiece", "out"),
    ("中国", "exists", "wordpiece", "spm"),
    ("dogcat", "spm.model: .*WordPiece", "spm", "out"),
  ],
)
def test_bad_input(words, message, source, target, spm_file, tmp_path):
  size = tokenization.SentencePieceTokenizer(spm_file).vocab_size
  write_folder(
    tmp_path / "spm", google_config(vocab_size=size), pathlib.Path(spm_file)
  )
  write_folder(
    tmp_path / "wordpiece", google_config(vocab_size=len(PIECES)), PIECES
  )
  refused(message, extend, tmp_path / source, tmp_path / target, words)
  assert {path.name for path in tmp_path.iterdir()} == {
    "spm",
    "wordpiece",
    "words.txt",
  }
