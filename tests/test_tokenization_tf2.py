"""All of the real text: WordPiece against Hugging Face's BertTokenizer."""

import json
import multiprocessing
import os

import pytest

import tokenization

VOCAB_FILE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    "albert_config", "vocab.txt")
DATA_SETS = ["afqmc", "lcqmc", "tnews", "clue_few", "ocnli", "chnsenticorp",
             "c3", "cmrc2018", "drcd", "glue", "squad2"]


def make_tokenizers(lower):
  os.environ["HF_HUB_OFFLINE"] = "1"
  os.environ["TOKENIZERS_PARALLELISM"] = "false"
  transformers = pytest.importorskip("transformers")
  return (tokenization.WordPieceTokenizer(VOCAB_FILE, do_lower_case=lower),
          transformers.BertTokenizer(VOCAB_FILE, do_lower_case=lower))


def start_worker(lower):
  global TOKENIZERS
  TOKENIZERS = make_tokenizers(lower)


def compare(texts):
  """(number of tokens, the texts that differ with both lists of ids)."""
  ours, theirs = TOKENIZERS
  # The Rust tokenizer itself: building the dictionaries takes a third more.
  encodings = theirs.backend_tokenizer.encode_batch_fast(
      texts, add_special_tokens=False)
  expected = [encoding.ids for encoding in encodings]
  found = []
  for text, ids in zip(texts, expected):
    mine = ours.convert_tokens_to_ids(ours.tokenize(text))
    if mine != ids:
      found.append((text, mine, ids))
  return sum(map(len, expected)), found


def compare_all(texts, lower=True, chunk=500):
  """Compares in two processes, each text once."""
  texts = sorted(set(texts))
  chunks = [texts[i:i + chunk] for i in range(0, len(texts), chunk)]
  num_tokens, found = 0, []
  # Not a fork: the parent has TensorFlow's threads.
  context = multiprocessing.get_context("spawn")
  with context.Pool(2, start_worker, (lower,)) as pool:
    for tokens, differences in pool.imap_unordered(compare, chunks):
      num_tokens += tokens
      found.extend(differences)
  return num_tokens, found


def strings(value):
  """Every string anywhere in a JSON value."""
  if isinstance(value, str):
    yield value
  elif isinstance(value, (list, dict)):
    for item in value.values() if isinstance(value, dict) else value:
      yield from strings(item)


def read_texts(path):
  content = path.read_text(encoding="utf-8")
  if path.suffix != ".json":
    return [cell for line in content.split("\n") for cell in line.split("\t")]
  try:
    return list(strings(json.loads(content)))
  except ValueError:  # one JSON value a line
    lines = content.split("\n")
    return list(strings([json.loads(line) for line in lines if line]))


def data_set_texts(real_data, name):
  texts = []
  for path in sorted((real_data / name).rglob("*.*")):
    if path.suffix in (".txt", ".tsv", ".json"):
      texts += read_texts(path)
  assert texts, "no text in %s" % name
  return texts


def test_every_line_of_the_corpus(real_data):
  texts = []
  for path in sorted((real_data / "corpus").glob("*.txt")):
    texts += path.read_text(encoding="utf-8").split("\n")
  num_tokens, found = compare_all(texts)
  assert num_tokens > 10**7
  assert not found, found[:3]


def test_every_text_of_the_data_sets(real_data):
  texts = []
  for name in DATA_SETS:
    texts += data_set_texts(real_data, name)
  num_tokens, found = compare_all(texts)
  assert num_tokens > 5 * 10**6
  assert not found, found[:3]


def test_cased_mode(real_data):
  texts = []
  for name in ["glue", "squad2", "c3", "drcd"]:
    texts += data_set_texts(real_data, name)
  num_tokens, found = compare_all(texts, lower=False)
  assert num_tokens > 10**6
  assert not found, found[:3]


@pytest.mark.parametrize("lower", [True, False])
def test_special_tokens_in_text(lower):
  ours, theirs = make_tokenizers(lower)
  for token in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]:
    for text in [token, "a%sb" % token, " Hello %s. " % token, token * 3,
                 "\u4e2d%s\u56fd" % token, "[%s]" % token, token.lower(),
                 "[ %s ]" % token[1:-1], token[:-1] + " ]", token[:-1]]:
      assert ours.tokenize(text) == theirs.tokenize(text), text
      assert ours.convert_tokens_to_ids(ours.tokenize(text)) == theirs(
          text, add_special_tokens=False)["input_ids"], text
