"""Programs of one's own import what the documents show, and define any flag."""

import json

import pytest
from scripting import ROOT, SIZES, VOCAB, succeed

pytestmark = [pytest.mark.slow, pytest.mark.once]

SCRIPTS = sorted(path.stem for path in ROOT.glob("*.py")
                 if not path.name.startswith("test_"))


def run(tmp_path, text, *args):
  """Runs a program that is in another folder; returns the lines it prints."""
  program = tmp_path / "program.py"
  program.write_text("import sys\nsys.path.insert(0, %r)\n%s" % (
      str(ROOT), text))
  return succeed(str(program), *args)[0].splitlines()


def test_a_flag_named_vocab_file(tmp_path):
  assert run(tmp_path, """
from absl import app, flags
flags.DEFINE_string("vocab_file", None, "The program's own.")
flags.DEFINE_bool("do_lower_case", True, "The program's own.")
flags.DEFINE_string("spm_model_file", None, "The program's own.")
from tokenization import WordPieceTokenizer
def main(_):
  tokenizer = WordPieceTokenizer(flags.FLAGS.vocab_file)
  print(tokenizer.vocab_size, *tokenizer.tokenize("Bank 天"))
app.run(main)
""", VOCAB) == ["21128 bank 天"]


def test_imports_define_no_flags(tmp_path):
  """Not even of all scripts together, whose flags have the same names."""
  assert run(tmp_path, """
from absl import flags
import tensorflow
before = set(flags.FLAGS)
for name in %r:
  __import__(name)
print(sorted(set(flags.FLAGS) - before))
""" % (SCRIPTS + ["albert.download"])) == ["[]"]


def test_the_model_and_the_optimizers(tmp_path):
  """A program that trains by itself, in both layouts."""
  (tmp_path / "config.json").write_text(json.dumps(
      dict(SIZES, vocab_size=9)))
  lines = run(tmp_path, """
import tensorflow.compat.v1 as tf
from lamb_optimizer import LAMB
from modeling import AlbertConfig, AlbertModel
from modeling_google import GoogleAlbertModel
from optimization import AdamW, create_learning_rate

config = AlbertConfig.from_json_file(sys.argv[1])
google = AlbertConfig.from_dict(dict(config.to_dict(), num_hidden_groups=1,
                                     parameter_sharing="all"))
for make, config, optimizer in ((AlbertModel, config, AdamW),
                                (GoogleAlbertModel, google, LAMB)):
  with tf.Graph().as_default(), tf.Session() as session:
    tf.set_random_seed(1)
    model = make(config=config, is_training=True, input_ids=tf.constant(
        [[1, 2, 3], [4, 5, 0]]), input_mask=tf.constant(
            [[1, 1, 1], [1, 1, 0]]), token_type_ids=tf.zeros([2, 3], tf.int32))
    assert model.get_sequence_output().shape == (2, 3, 16)
    assert len(model.get_all_encoder_layers()) == 2
    assert model.get_embedding_table().shape == (9, 8)
    logits = tf.layers.dense(model.get_pooled_output(), 2)
    loss = tf.losses.sparse_softmax_cross_entropy([0, 1], logits)
    step = tf.train.get_or_create_global_step()
    train = optimizer(create_learning_rate(0.01, 100, 2, step)).minimize(
        loss, step)
    session.run(tf.global_variables_initializer())
    first = session.run(loss)
    for _ in range(20):
      session.run(train)
    print(session.run(step), session.run(loss) < first)
""", tmp_path / "config.json")
  assert lines == ["20 True"] * 2


def test_models_that_stay_warm(tmp_path):
  """The starter's, by their default arguments' names."""
  assert run(tmp_path, """
from albert.predict.tagger import EntityTagger
from predict_masked import MaskedPredictor
from similarity import BertSim, VectorSim
from tokenization import create_tokenizer, encode_texts, pack_pair

starter = sys.argv[1]
masked = MaskedPredictor(starter)
(token, _), = masked.predict(["我[MASK]知道他在哪里。"], top_k=1)[0][0]
print(token)
print(len(VectorSim(starter).predict_sentences([("a", "b"), ("b", "a b")])))
tokenizer = create_tokenizer(starter + "/vocab.txt")
ids = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(text))
       for text in ("今天", "天")]
print(pack_pair(tokenizer, *ids, max_seq_length=64) ==
      encode_texts(tokenizer, "今天", "天", 64))
for make in (lambda: BertSim(starter).start_model(),
             lambda: EntityTagger(starter)):
  try:
    make()
  except ValueError as error:
    print(type(error).__name__)
""", ROOT / "albert_tiny_starter") == ["不", "2", "True", "InputError",
                                       "InputError"]
