"""The report page of quickstart.sh, parsed as XML."""

import re
import xml.etree.ElementTree

from albert import report


def test_page(tmp_path):
  for name, text in (
    ("masks.tsv", "不 0.7500 & 0.1250\t我[MASK]<b>。\n"),
    ("grid.tsv", "0.5\t甲\t乙\n-0.25\t甲\t丙\n0.1\t丁\t乙\n1.0\t丁\t丙\n"),
    (
      "topics/eval_history.tsv",
      "global_step\teval_accuracy\n10\t0.5\n20\t0.75\n",
    ),
    (
      "scratch/eval_history.tsv",
      "eval_accuracy\tglobal_step\n0.25\t10\n0.125\t40\n",
    ),
  ):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
  report.main([str(tmp_path)])
  text = (tmp_path / "report.html").read_text("utf-8")
  assert not re.search("https?:|src=|href=|url", text)
  page = xml.etree.ElementTree.fromstring(
    re.sub("<!DOCTYPE.*>|<meta.*>|<br>", "", text)
  )
  assert page.find("p").text == "我[MASK]<b>。"
  assert [(bar.text, bar.get("style")) for bar in page.iter("div")] == [
    ("不 0.7500", "background-size: 75.0%"),
    ("& 0.1250", "background-size: 12.5%"),
  ]
  # x: 40 at step 0 to 500 at step 40; y: 230 at 0 to 20 at 1.
  assert [
    [
      tuple(map(float, point.split(",")))
      for point in line.get("points").split()
    ]
    for line in page.iter("polyline")
  ] == [[(155, 125), (270, 72.5)], [(155, 177.5), (500, 203.8)]]
  assert [title.text for title in page.iter("title")][1:] == [
    "10: 0.500",
    "20: 0.750",
    "10: 0.250",
    "40: 0.125",
  ]
  assert [th.text for th in page.iter("th")] == [
    None,
    "1",
    "2",
    "1. 甲",
    "2. 丁",
  ]
  assert [(td.text, td.get("style")[-5:-1]) for td in page.iter("td")] == [
    ("0.50", "0.40"),
    ("-0.25", "0.00"),
    ("0.10", "0.08"),
    ("1.00", "0.80"),
  ]
