"""Documents: flags exist, links resolve, and the Chinese ones have the code
blocks, tables and numbers of the English ones."""

import re
import types

import pytest
from absl import flags
from scripting import BLOCK, ROOT, blocks, module_of, parsed

from albert import download

pytestmark = pytest.mark.platform_independent("documents")

DOCUMENTS = [
  "README.md",
  "albert_tiny_starter/MODEL_CARD.md",
  *("docs/" + path.name for path in sorted((ROOT / "docs").glob("*.md"))),
]
PAIRS = [
  (path.replace("docs/README_zh", "README").replace("_zh", ""), path)
  for path in DOCUMENTS
  if path.endswith("_zh.md")
]
# The script to which a shell script passes its flags.
STARTED = {
  "run_pretraining.sh": "run_pretraining.py",
  "create_pretrain_data.sh": "create_pretraining_data.py",
  "run_classifier_lcqmc.sh": "run_classifier.py",
  "run_classifier_clue.sh": "run_classifier.py",
  "run_classifier_clue.sh cluener": "run_ner.py",
  "quickstart.sh": None,
  "run_tests.sh": None,
}


def read(path):
  return (ROOT / path).read_text(encoding="utf-8")


def prose(path):  # outside code blocks
  return re.sub(BLOCK, "", read(path))


def calls(path):
  """Yields (script, arguments) of each command line in a document; resolves
  shell variables and functions."""
  known = {}
  for _, language, text in blocks(path):
    name = None
    text = re.sub(r"(?<!\S)#.*|\\\n|\$\([^()]*\)", " ", text)
    text = re.sub(r'"[^"]*"', lambda found: found[0].replace("\n", " "), text)
    for line in re.split(r"[\n|;&]+", text) if language == "bash" else ():
      begun = re.match(r'(\w+)(\(\) {|=")|}', line)
      name = begun[1] if begun else name
      call = re.search(r"(?:python|bash) (?:-m )?(\w[\w/]*[.]\w+)(.*)", line)
      if call:
        known[name or ""] = call[1]
        yield call.groups()
      call = re.match(r"\s*(?:\w+=\S+ )*[$]?(\w+) (.*)", line)
      if call and call[1] in known:
        yield known[call[1]], call[2]


@pytest.mark.parametrize("path", DOCUMENTS)
def test_flags_of_commands(path, monkeypatch):
  """Parsed by the script's own flags; with $, only names are checked."""
  monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
  for script, words in calls(path):
    if "cluener" in words:
      script = STARTED.get(script + " cluener", script)
    script = STARTED.get(script, script)
    if script == "albert.vocab":
      script += "." + words.split()[0]
    if not script:
      continue
    words = re.findall(r"(?<!\S)--\S+", re.sub("[\"']", "", words))
    file = re.sub("[.]py$", "", script).replace(".", "/") + ".py"
    known = set(re.findall(r'DEFINE_\w+\(\s*"(\w+)"', read(file)))
    if not known:
      module = module_of(file)
      with parsed(
        types.SimpleNamespace(
          __name__=script,
          DEFAULTS=getattr(module, "DEFAULTS", {}),
          SETTINGS=getattr(module, "SETTINGS", (download.DownloadSettings,)),
        ),
        *[word for word in words if "$" not in word],
      ):
        known = set(flags.FLAGS)
    assert {word[2:].split("=")[0] for word in words} <= {*known, "flagfile"}


@pytest.mark.parametrize("path", DOCUMENTS)
def test_blocks_and_links(path):
  for comment, language, text in blocks(path):
    assert language in ("", "bash", "python")
    assert re.match("$|not run: |needs ", comment), comment
    assert (
      language
      or not comment
      and not re.search("^(bash|python|source) ", text, re.M)
    )
  for name, anchor in links(path):
    target = (ROOT / path).parent / name if name else ROOT / path
    assert target.exists(), name
    assert not anchor or anchor in {  # GitHub's anchors of headings
      re.sub(r"[^\w\- ]", "", text).lower().replace(" ", "-")
      for _, text in headings(target)
    }, (name, anchor)


def links(path):
  return re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", prose(path))


def headings(path):
  return re.findall("(?m)^(#+) (.*)", prose(path))


def figures(text):
  """Returns numbers of at least two digits, such as 16, 0.25 and 1e-4."""
  return re.findall(
    "[0-9]+(?:[.,][0-9]+)+(?:e-[0-9]+)?|[0-9]+e-[0-9]+|[0-9]{2,}", text
  )


def tables(path):
  """Returns [[(number of bars, figures) of each row] of each table]."""
  return [
    [(row.count("|"), sorted(figures(row))) for row in table.splitlines()]
    for table in re.findall(r"(?:^\|.*\n)+", prose(path), re.M)
  ]


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_agrees(pair):
  for part in (
    tables,
    lambda path: set(figures(prose(path))),
    lambda path: [level for level, _ in headings(path)],
    # Comments are translated.
    lambda path: [
      (*head, re.sub(" *# .*", "", text) if head[1] else text)
      for *head, text in blocks(path)
    ],
  ):
    assert part(pair[0]) == part(pair[1])
  # The first link leads to the other language.
  for path, other in (pair, pair[::-1]):
    assert ((ROOT / path).parent / links(path)[0][0]).resolve() == ROOT / other


def test_the_readme_is_short_and_names_all_released_models():
  text = read("README.md")
  assert len(text.splitlines()) <= 300
  assert set(
    re.findall(
      "`(albert_[a-z0-9_]+)`",
      text[text.index("## Released models") : text.index("## (a)")],
    )
  ) == {name for name in download.ITEMS if name.startswith("albert_")}
