"""The data report before training, worked by hand."""

from absl import logging

import tokenization
from albert.tasks.data_report import Item, describe


def test_what_a_file_holds(tokenizer):
  train = [Item(("甲乙",), ("1",)), Item(("甲", "乙"), ("1",))]
  rows = [Item(("甲乙",), labels) for labels in (("1",), ("0",), ("1",))] + [
    Item(("\ue000，，，，", "丁"), None)
  ]
  first = tokenization.encode_texts(tokenizer, "甲乙", None, 8)[0] + [0, 0]
  found = list(describe(rows, ["a.tsv", "b.tsv"], first, tokenizer, 4, train))
  assert found == [
    (logging.INFO, "4 examples of a.tsv, b.tsv; labels: 1 2, 0 1"),
    (logging.INFO, "the first is read as [CLS] 甲 乙 [SEP]"),
    (
      logging.WARNING,
      "25.0% are longer than --max_seq_length=4, which cuts "
      "off 23.8% of all tokens",
    ),
    (
      logging.INFO,
      "4.76% of the tokens are [UNK], most often \ue000 (1 times)",
    ),
    (logging.INFO, "2 are duplicates"),
    (logging.WARNING, "1 of these differ in labels, such as '甲乙': 1 and 0"),
    (
      logging.WARNING,
      "3 are in the training file, such as '甲乙': results will be too good",
    ),
  ]
  # Windows cut nothing; no overlap is reported for training files.
  assert len(list(describe(rows, [], first, tokenizer, None, []))) == 5
  # A text without a label is no contradiction.
  assert all(
    level == logging.INFO
    for level, _ in describe(
      train[:1] + [Item(("甲乙",), None)], ["d"], first, tokenizer, 8, []
    )
  )
  many = [Item((str(i),), (str(i % 30),)) for i in range(2000)]
  (_, content), *_ = describe(many, ["c"], first, tokenizer, None, [])
  assert content.endswith(", 19 67, 10 more")
