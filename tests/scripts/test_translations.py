"""Chinese documents have the blocks, tables and figures of the English ones."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAIRS = [("README.md", "docs/README_zh.md")] + [
    ("docs/%s.md" % name, "docs/%s_zh.md" % name)
    for name in ("fine_tuning", "pretraining", "deployment")]
BLOCK = re.compile(r"^((?:<!-- [^\n]* -->\n)?```(\w*)\n)(.*?)^```$",
                   re.M | re.S)


def read(path):
  return (ROOT / path).read_text(encoding="utf-8")


def blocks(path):
  """Returns [(what is before a block, its text)]; comments are translated."""
  return [(head, re.sub(" *# .*", "", block) if language else block)
          for head, language, block in BLOCK.findall(read(path))]


def prose(path):
  """Returns what is outside blocks."""
  return BLOCK.sub("", read(path))


def figures(text):
  """Returns the numbers of two digits or more, such as 16, 0.25 and 1e-4."""
  return [number for number in re.findall(
      "[0-9]+(?:[.,][0-9]+)*(?:e-[0-9]+)?", text)
      if len(re.findall("[0-9]", number)) > 1]


def tables(path):
  """Returns [[(number of bars, figures) of each row] of each table]."""
  return [[(row.count("|"), sorted(figures(row))) for row in table.splitlines()]
          for table in re.findall(r"(?:^\|.*\n)+", prose(path), re.M)]


def headings(path):
  return re.findall("^(#+) (.*)", prose(path), re.M)


def anchors(path):
  """Returns the names that GitHub gives to headings."""
  return {re.sub(r"[^\w\- ]", "", text).lower().replace(" ", "-")
          for _, text in headings(path)}


@pytest.mark.parametrize("english, chinese", PAIRS)
def test_a_pair_agrees(english, chinese):
  assert blocks(english) == blocks(chinese)
  assert tables(english) == tables(chinese)
  assert set(figures(prose(english))) == set(figures(prose(chinese)))
  assert [level for level, _ in headings(english)] == [
      level for level, _ in headings(chinese)]


@pytest.mark.parametrize("path", [path for pair in PAIRS for path in pair])
def test_local_links(path):
  links = re.findall(r"\]\((?!http)([^)#]*)#?([^)]*)\)", prose(path))
  for name, anchor in links:
    target = (ROOT / path).parent / name if name else ROOT / path
    assert target.exists(), name
    assert not anchor or anchor in anchors(target), (name, anchor)
  # The first link is that to the other language.
  pair, = [pair for pair in PAIRS if path in pair]
  other = pair[path == pair[0]]
  assert ((ROOT / path).parent / links[0][0]).resolve() == ROOT / other


def test_every_chinese_document_is_in_a_pair():
  assert {"docs/" + path.name for path in (ROOT / "docs").glob("*_zh.md")} == {
      chinese for _, chinese in PAIRS}
