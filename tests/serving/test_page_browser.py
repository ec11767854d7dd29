"""The page in a real browser: each view shows the API's response."""

import contextlib
import json
import shutil
from types import SimpleNamespace

import pytest
from live_service import live

from albert.predict import results
from albert.predict.similarity import Found
from albert.serving.gate import LOCAL, Keys
from albert.serving.service import Loaded, create_app

pytestmark = [
  pytest.mark.full,
  pytest.mark.platform_independent("a page, with stand-ins for models"),
]
HTML = "<img src=x onerror=alert(1)>&amp;<b>好</b>"
WORDS = [results.Candidate("好", 0.75), results.Candidate("坏", 0.25)]
GOOD, BAD = ("好", "width: 75%;"), ("坏", "width: 25%;")
CHOICES = [
  results.ChoiceResult(number, word.text, WORDS)
  for number, word in enumerate(WORDS)
]


def model(kind, make, *fields):
  """A fake model; `make`: function, input -> result."""
  return SimpleNamespace(
    kind=kind,
    fields=fields or ("text",),
    labels=["0", "1"],
    reading={},
    is_cut=lambda row: len(row[0]) > 100,
    predict=lambda inputs, top_k: [make(row) for row in inputs],
  )


def pair_score(row):
  same = 1.0 if row[0] == row[1] else len(row[0]) / 10
  return results.LabelResult(
    "1", same, [results.Candidate("1", same), results.Candidate("0", 1 - same)]
  )


def found_answer(row):
  found = results.AnswerCandidate(row[1][1:3], 0.75, 1, 3)
  return results.AnswerResult(
    found.text if "?" in row[0] else "", 1, 3, 0.75, [found], 0.5
  )


MODELS = {
  "topics": model("label", lambda _: results.LabelResult("好", 0.75, WORDS)),
  "tags": model("labels", lambda _: results.LabelsResult(["坏"], WORDS)),
  "rating": model("score", lambda text: results.ScoreResult(len(text) / 3)),
  "names": model(
    "entities",
    lambda text: results.EntityResult(
      [
        results.FoundEntity(text[2:4], 2, 4, "city"),
        results.FoundEntity(text[5:6], 5, 6, "name"),
      ]
    ),
  ),
  "answers": model("answer", found_answer, "question", "passage"),
  "choices": model(
    "choice", lambda _: CHOICES[1], "passage", "question", "choices"
  ),
  "idioms": model(
    "idioms", lambda _: results.IdiomResult(CHOICES), "text", "choices"
  ),
  "masks": model(
    "masks", lambda text: results.MaskResult([WORDS] * text.count("[MASK]"))
  ),
  "pairs": model("label", pair_score, "text_a", "text_b"),
}


class Page:
  """The page as a user sees and drives it."""

  def __init__(self, driver, ask):
    self.driver, self.ask = driver, ask
    self.url = "http://127.0.0.1:%d/" % ask.port

  def open(self, model=None):
    self.driver.get(self.url)
    self.wait(lambda: self.all("form label") or self.all("#answer .error"))
    if model:
      self.press("#models", model)

  def wait(self, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(self.driver, 20).until(lambda _: condition())

  @property
  def active(self):
    return self.driver.switch_to.active_element

  def all(self, css):
    return self.driver.find_elements("css selector", css)

  def texts(self, css):
    return [x.text for x in self.all("#answer " + css)]

  def press(self, where, text):
    next(x for x in self.all(where + " button") if x.text == text).click()

  def fill(self, **values):
    for name, value in values.items():
      field = self.driver.find_element("name", name)
      field.clear()
      field.send_keys(value)

  def go(self, **values):
    self.fill(**values)
    self.all("#form .go")[0].click()

  def submit(self, model=None, **values):
    """Submits the form; returns the page's request and the response."""
    if model:
      self.open(model)
    self.driver.execute_script("document.getElementById('raw').hidden = true")
    self.go(**values)
    return self.answer()

  def answer(self):
    self.wait(lambda: self.all("#raw")[0].is_displayed())
    first, body, _, *answer = self.driver.execute_script(
      "return document.querySelector('#raw pre').textContent"
    ).split("\n")
    body, answer = json.loads(body), json.loads("\n".join(answer))
    # Any client gets the same response.
    assert self.ask(first[len("POST ") :], body).json == answer
    assert not self.all("#answer img, #answer b")  # HTML is escaped
    return body, answer

  def bars(self):
    """Returns (text, width in percent, is chosen) of all bars."""
    return [
      (
        bar.find_element("tag name", "span").text,
        bar.find_element("class name", "fill").get_attribute("style"),
        "chosen" in bar.get_attribute("class"),
      )
      for bar in self.all("#answer .bar")
    ]


@contextlib.contextmanager
def opened(*args, **kwargs):
  """Starts a service of `create_app` and a browser; yields the Page."""
  webdriver = pytest.importorskip("selenium.webdriver")
  options = webdriver.ChromeOptions()
  for flag in (
    "headless=new",
    "no-sandbox",
    "disable-dev-shm-usage",
    "window-size=900,1000",
  ):
    options.add_argument("--" + flag)
  options.add_experimental_option("prefs", {"intl.accept_languages": "zh-CN"})
  options.set_capability(
    "goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"}
  )
  options.binary_location = shutil.which("chromium")
  driver = webdriver.Chrome(
    options=options,
    service=(webdriver.chrome.service.Service(shutil.which("chromedriver"))),
  )
  try:
    with live(create_app(*args, allowed_hosts=LOCAL, **kwargs)) as ask:
      yield Page(driver, ask)
  finally:
    driver.quit()


@pytest.fixture(scope="module")
def page():
  models = {name: Loaded(model) for name, model in MODELS.items()}
  models["masks"] = Loaded(
    MODELS["masks"],
    lambda sentences: [
      [float(a == b) or -0.5 for b in sentences] for a in sentences
    ],
    lambda queries, top_k: [
      [Found("像" + query, 7, 0.25)] for query in queries
    ],
  )
  with opened(models) as page:
    yield page
    # In all tests: no errors, no requests to other hosts.
    assert not [
      x
      for x in page.driver.get_log("browser")
      if x["level"] == "SEVERE" and "422" not in x["message"]
    ]
    urls = [
      event["params"]["request"]["url"]
      for event in (
        json.loads(x["message"])["message"]
        for x in page.driver.get_log("performance")
      )
      if event["method"] == "Network.requestWillBeSent"
    ]
    assert urls and all(x.startswith((page.url, "data:")) for x in urls)


def test_labels(page):
  body, _ = page.submit("topics", texts="第一条\n\n  %s  " % HTML)
  assert body == {"instances": ["第一条", HTML]}
  assert page.texts(".text") == ["第一条", HTML]
  assert page.bars() == [(*GOOD, True), (*BAD, False)] * 2
  page.submit("tags", texts="一")
  assert page.bars() == [(*GOOD, False), (*BAD, True)]
  page.submit("rating", texts="一二三四")
  assert page.texts(".number") == ["1.3333"]


def test_entities(page):
  """After a surrogate pair, which the driver cannot type."""
  page.open("names")
  page.driver.execute_script(
    "document.querySelector('textarea').value = arguments[0]",
    "𠮷在北京，王好" + HTML,
  )
  _, answer = page.submit()
  assert [x["text"] for x in answer["predictions"][0]["entities"]] == [
    "北京",
    "王",
  ]
  assert page.texts("mark") == ["北京city", "王name"]
  assert page.texts(".text") == ["𠮷在北京city，王name好" + HTML]
  assert (
    len(
      {
        x.value_of_css_property("background-color")
        for x in page.all("#answer mark")
      }
    )
    == 2
  )


def test_answers(page):
  page.submit("answers", question="谁?", passage="是小明说的" + HTML)
  assert page.texts("mark") == ["小明"]
  assert page.texts(".text") == ["是小明说的" + HTML]
  assert page.bars() == [("小明", "width: 75%;", True)]
  page.submit(question="谁")
  assert page.texts("mark, #answer .note") == ["没有答案"]


def test_choices(page):
  given = dict(passage="甲", question="乙")
  body, _ = page.submit("choices", choices="好\n坏", **given)
  assert body["instances"] == [dict(given, choices=["好", "坏"])]
  assert page.bars() == [(*GOOD, False), (*BAD, True)]
  page.go(choices="好")
  page.wait(lambda: page.texts(".error"))
  assert page.texts(".error")[0].startswith("instances.0.choices: ")
  page.submit("idioms", text="他#idiom1#，她#idiom2#", choices="好\n坏")
  assert page.bars() == [
    (*GOOD, True),
    (*BAD, False),
    (*GOOD, False),
    (*BAD, True),
  ]


def test_masks_by_keyboard_alone(page):
  from selenium.webdriver.common.keys import Keys

  page.open("masks")
  page.fill(texts="天气很")
  box = page.active
  box.send_keys(Keys.TAB)
  assert page.active.text == "加入 [MASK]"
  page.active.send_keys(Keys.ENTER)
  box.send_keys("，我[MASK]")
  assert box.get_attribute("value") == "天气很[MASK]，我[MASK]"
  box.send_keys(Keys.CONTROL, Keys.ENTER)
  page.answer()
  assert page.texts(".candidate") == ["好 75.0%", "坏 25.0%"] * 2
  box.send_keys(*[Keys.TAB] * 3)  # two buttons, then the first candidate
  assert page.active.text == "好 75.0%"
  page.active.send_keys(Keys.TAB)
  page.active.send_keys(Keys.ENTER)
  assert box.get_attribute("value") == "天气很坏，我[MASK]"
  # The remaining mask, now the first, is predicted at once.
  page.wait(lambda: len(page.all("#answer .candidate")) == 2)
  page.all("#answer .candidate")[0].click()
  assert box.get_attribute("value") == "天气很坏，我好"


def test_pairs_grids_and_search(page):
  page.submit("pairs", text_a="三个字", text_b="四个字吗")
  assert page.bars()[0] == ("1", "width: 30%;", True)
  page.submit(text_a="长" * 101)
  assert page.texts(".note") == ["文本过长，只读取了一部分。"]
  for model, cells in (
    ("pairs", ["1.00", "0.10", "0.30", "1.00"]),
    ("masks", ["1.00", "-0.50", "-0.50", "1.00"]),
  ):
    page.open(model)
    page.press("#views", "句子两两比较")
    page.submit(sentences="一\n三个字")
    assert page.texts("td") == cells
    assert page.texts("th[scope=row]") == ["1. 一", "2. 三个字"]
  page.press("#views", "查找相似的文本")
  body, _ = page.submit(queries="一\n" + HTML)
  assert body == {"queries": ["一", HTML]}
  assert page.texts(".found .text") == ["像一", "像" + HTML]
  assert page.texts(".found small") == ["0.250 · 7"] * 2


def test_languages_and_a_phone(page):
  page.open("topics")
  (language,) = page.all("#language")
  for words in ("预测", "Predict", "预测"):
    assert [x.text for x in page.all("#form .go")] == [words]
    assert (page.all("html")[0].get_attribute("lang") == "en") == (
      words == "Predict"
    )
    language.click()
  language.click()
  page.driver.execute_cdp_cmd(
    "Emulation.setDeviceMetricsOverride",
    {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True},
  )
  try:
    for model in MODELS:
      page.submit(model)
      assert (
        page.driver.execute_script(
          "return document.documentElement.scrollWidth"
        )
        <= 360
      ), model
  finally:
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_key_is_asked_for():
  with opened(
    {"topics": Loaded(MODELS["topics"])}, keys=Keys(["secret"])
  ) as page:
    page.open()
    for key, shown in (("wrong", "#answer .error"), ("secret", "#form label")):
      page.fill(key=key)
      page.press("#answer", "预测")
      page.wait(lambda shown=shown: page.all(shown))
    page.go(texts="一")
    page.wait(page.bars)
    assert page.bars() == [(*GOOD, True), (*BAD, False)]
