"""The page in a real browser, Debian's chromium: each view shows what the API
answers. Not collected where there is no browser.
"""

import contextlib
import json
import shutil

import pytest
from live_service import live

from albert.predict import results
from albert.predict.search import Found
from albert.serving.service import create_app

webdriver = pytest.importorskip("selenium.webdriver")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

pytestmark = pytest.mark.slow

HTML = "<img src=x onerror=alert(1)>&amp;<b>好</b>"
WORDS = [results.Candidate("好", 0.75), results.Candidate("坏", 0.25)]


class Model:
  """A stand-in: what it says of each input is made by a function."""
  labels = ["0", "1"]

  def __init__(self, kind, make, *fields):
    self.kind, self.fields, self._make = kind, fields or ("text",), make

  def is_cut(self, row):
    return len(row[0]) > 100

  def predict(self, inputs, top_k):
    return list(map(self._make, inputs))


def choice(number):
  return results.ChoiceResult(number, WORDS[number].text, WORDS)


def pair_score(row):
  same = 1.0 if row[0] == row[1] else len(row[0]) / 10
  return results.LabelResult("1", same, [
      results.Candidate("1", same), results.Candidate("0", 1 - same)])


MODELS = {
    "topics": Model("label", lambda text: results.LabelResult(
        "好", 0.75, WORDS)),
    "tags": Model("labels", lambda text: results.LabelsResult(["坏"], WORDS)),
    "rating": Model("score", lambda text: results.ScoreResult(len(text) / 3)),
    # A character of two halves before the entities.
    "names": Model("entities", lambda text: results.EntityResult([
        results.FoundEntity(text[2:4], 2, 4, "city"),
        results.FoundEntity(text[5:6], 5, 6, "name")])),
    "answers": Model("answer", lambda row: results.AnswerResult(
        row[1][1:3] if "?" in row[0] else "", 1, 3, 0.75, [
            results.AnswerCandidate(row[1][1:3], 0.75, 1, 3)], 0.5),
                     "question", "passage"),
    "choices": Model("choice", lambda row: choice(1), "passage", "question",
                     "choices"),
    "idioms": Model("idioms", lambda row: results.IdiomResult(
        [choice(0), choice(1)]), "text", "choices"),
    "masks": Model("masks", lambda text: results.MaskResult(
        [WORDS] * text.count("[MASK]"))),
    "pairs": Model("label", pair_score, "text_a", "text_b"),
}


def compare(sentences):
  return [[float(a == b) or -0.5 for b in sentences] for a in sentences]


def search(queries, top_k):
  return [[Found("像" + query, 7, 0.25)] for query in queries]


class Page:
  """What a user sees and does."""

  def __init__(self, driver, ask):
    self.driver, self.ask = driver, ask

  def open(self, model=None):
    self.driver.get("http://127.0.0.1:%d/" % self.ask.port)
    self.wait(lambda: self.all("form label") or self.all("#answer .error"))
    if model:
      self.press("#models", model)

  def wait(self, condition):
    return WebDriverWait(self.driver, 20).until(lambda _: condition())

  def all(self, css):
    return self.driver.find_elements(By.CSS_SELECTOR, css)

  def texts(self, css):
    return [x.text for x in self.all(css)]

  def press(self, where, text):
    next(x for x in self.all(where + " button") if x.text == text).click()

  def fill(self, **values):
    for name, value in values.items():
      field = self.driver.find_element(By.NAME, name)
      field.clear()
      field.send_keys(value)

  def submit(self):
    """Returns the request that the page made, and its answer."""
    self.driver.execute_script(
        "document.getElementById('raw').hidden = true")
    self.driver.find_element(By.CSS_SELECTOR, "#form .go").click()
    return self.answer()

  def answer(self):
    self.wait(lambda: self.driver.find_element(By.ID, "raw").is_displayed())
    first, body, _, *answer = self.driver.execute_script(
        "return document.querySelector('#raw pre').textContent").split("\n")
    path, body = first[len("POST "):], json.loads(body)
    answer = json.loads("\n".join(answer))
    # What is shown is what anybody is answered.
    assert self.ask(path, body).json == answer
    return body, answer

  def bars(self):
    """Returns (text, width in percent, whether chosen) of all bars."""
    return [(bar.find_element(By.TAG_NAME, "span").text,
             bar.find_element(By.CLASS_NAME, "fill").get_attribute("style"),
             "chosen" in bar.get_attribute("class"))
            for bar in self.all("#answer .bar")]


@contextlib.contextmanager
def browser():
  options = webdriver.ChromeOptions()
  for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage",
               "window-size=900,1000"):
    options.add_argument("--" + flag)
  options.add_experimental_option("prefs", {"intl.accept_languages": "zh-CN"})
  options.set_capability("goog:loggingPrefs", {
      "performance": "ALL", "browser": "ALL"})
  options.binary_location = shutil.which("chromium")
  driver = webdriver.Chrome(options=options, service=(
      webdriver.chrome.service.Service(shutil.which("chromedriver"))))
  try:
    yield driver
  finally:
    driver.quit()


@pytest.fixture(scope="module")
def page():
  with live(create_app(MODELS, compare={"masks": compare},
                       search={"masks": search})) as ask, (
      browser()) as driver:
    yield Page(driver, ask)
    # Over all tests: no error, and nothing asked of another host.
    assert not [x for x in driver.get_log("browser")
                if x["level"] == "SEVERE" and "422" not in x["message"]]
    urls = [event["params"]["request"]["url"] for event in (
        json.loads(x["message"])["message"] for x in driver.get_log(
            "performance")) if event["method"] == "Network.requestWillBeSent"]
    own = "http://127.0.0.1:%d/" % ask.port
    assert urls
    assert not [x for x in urls if not x.startswith((own, "data:"))]


GOOD, BAD = ("好", "width: 75%;"), ("坏", "width: 25%;")


def test_labels(page):
  page.open("topics")
  page.fill(texts="第一条\n\n  第二条  ")
  body, _ = page.submit()
  assert body == {"instances": ["第一条", "第二条"]}
  assert page.texts("#answer .text") == ["第一条", "第二条"]
  assert page.bars() == [(*GOOD, True), (*BAD, False)] * 2
  page.open("tags")
  page.fill(texts="一")
  page.submit()
  assert page.bars() == [(*GOOD, False), (*BAD, True)]
  page.open("rating")
  page.fill(texts="一二三四")
  page.submit()
  assert page.texts("#answer .number") == ["1.3333"]


def test_entities(page):
  page.open("names")
  page.driver.execute_script(  # the driver cannot type 𠮷
      "document.querySelector('textarea').value = '𠮷在北京，王好'")
  _, answer = page.submit()
  entities = answer["predictions"][0]["entities"]
  assert [x["text"] for x in entities] == ["北京", "王"]
  assert page.texts("#answer mark") == ["北京city", "王name"]
  assert page.texts("#answer .text") == ["𠮷在北京city，王name好"]
  assert len({x.value_of_css_property("background-color")
              for x in page.all("#answer mark")}) == 2


def test_answers(page):
  page.open("answers")
  page.fill(question="谁?", passage="是小明说的")
  page.submit()
  assert page.texts("#answer mark") == ["小明"]
  assert page.texts("#answer .text") == ["是小明说的"]
  assert page.bars() == [("小明", "width: 75%;", True)]
  page.fill(question="谁")
  page.submit()
  assert page.texts("#answer mark") == []
  assert page.texts("#answer .note") == ["没有答案"]


def test_choices(page):
  page.open("choices")
  page.fill(passage="甲", question="乙", choices="好\n坏")
  body, _ = page.submit()
  assert body["instances"] == [
      {"passage": "甲", "question": "乙", "choices": ["好", "坏"]}]
  assert page.bars() == [(*GOOD, False), (*BAD, True)]
  page.open("idioms")
  page.fill(text="他#idiom1#，她#idiom2#", choices="好\n坏")
  page.submit()
  assert page.bars() == [(*GOOD, True), (*BAD, False), (*GOOD, False),
                         (*BAD, True)]


def test_masks_by_keyboard_alone(page):
  page.open("masks")
  page.fill(texts="天气很")
  box = page.driver.switch_to.active_element
  box.send_keys(Keys.TAB)
  add = page.driver.switch_to.active_element
  assert add.text == "加入 [MASK]"
  add.send_keys(Keys.ENTER)
  box.send_keys("，我[MASK]")
  assert box.get_attribute("value") == "天气很[MASK]，我[MASK]"
  box.send_keys(Keys.CONTROL, Keys.ENTER)
  page.answer()
  assert page.texts("#answer .candidate") == ["好 75.0%", "坏 25.0%"] * 2
  box.send_keys(*[Keys.TAB] * 3)  # two buttons, then the first candidate
  first = page.driver.switch_to.active_element
  assert first.text == "好 75.0%"
  first.send_keys(Keys.TAB)
  page.driver.switch_to.active_element.send_keys(Keys.ENTER)
  assert box.get_attribute("value") == "天气很坏，我[MASK]"
  # What is left is asked at once; the second one is now the first.
  page.wait(lambda: len(page.all("#answer .candidate")) == 2)
  page.all("#answer .candidate")[0].click()
  assert box.get_attribute("value") == "天气很坏，我好"


def test_pairs_and_grids(page):
  page.open("pairs")
  page.fill(text_a="三个字", text_b="四个字吗")
  page.submit()
  assert page.bars()[0] == ("1", "width: 30%;", True)
  page.press("#views", "句子两两比较")
  page.fill(sentences="一\n三个字")
  _, answer = page.submit()
  assert len(answer["predictions"]) == 4
  assert page.texts("#answer td") == ["1.00", "0.10", "0.30", "1.00"]
  assert page.texts("#answer th[scope=row]") == ["1. 一", "2. 三个字"]
  page.open("masks")
  page.press("#views", "句子两两比较")
  page.fill(sentences="一\n三个字")
  page.submit()
  assert page.texts("#answer td") == ["1.00", "-0.50", "-0.50", "1.00"]


def test_search(page):
  page.open("masks")
  page.press("#views", "查找相似的文本")
  page.fill(queries="一\n" + HTML)
  body, _ = page.submit()
  assert body == {"queries": ["一", HTML]}
  assert page.texts("#answer .found .text") == ["像一", "像" + HTML]
  assert page.texts("#answer .found small") == ["0.250 · 7"] * 2


def test_what_looks_like_html_is_text(page):
  for model, name in (("topics", "texts"), ("names", "texts"),
                      ("answers", "passage")):
    page.open(model)
    page.fill(**{name: HTML})
    if model == "answers":
      page.fill(question=HTML)
    page.submit()
    shown = "".join(page.texts("#answer .text"))
    assert shown.replace("city", "").replace("name", "") == HTML
    assert not page.all("#answer img, #answer b")


def test_errors_and_what_is_too_long(page):
  page.open("choices")
  page.fill(passage="甲", question="乙", choices="好")
  page.driver.find_element(By.CSS_SELECTOR, "#form .go").click()
  page.wait(lambda: page.texts("#answer .error"))
  assert page.texts("#answer .error") == [
      "instances.0.choices: expected a list of two texts or more"]
  page.open("pairs")
  page.fill(text_a="长" * 101, text_b="短")
  page.submit()
  assert page.texts("#answer .note") == ["文本过长，只读取了一部分。"]


def test_languages(page):
  page.open("topics")
  assert page.texts("#form .go") == ["预测"]
  page.driver.find_element(By.ID, "language").click()
  assert page.texts("#form .go") == ["Predict"]
  html = page.driver.find_element(By.TAG_NAME, "html")
  assert html.get_attribute("lang") == "en"
  page.driver.find_element(By.ID, "language").click()
  assert page.texts("#form .go") == ["预测"]


def test_a_phone(page):
  page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
      "width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True})
  try:
    for model in MODELS:
      page.open(model)
      page.submit()
      assert page.driver.execute_script(
          "return document.documentElement.scrollWidth") <= 360, model
  finally:
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_key_is_asked_for():
  with live(create_app({"topics": MODELS["topics"]}, keys=["secret"])) as ask, (
      browser()) as driver:
    page = Page(driver, ask)
    page.open()
    page.fill(key="wrong")
    page.press("#answer", "预测")
    page.wait(lambda: page.texts("#answer .error"))
    page.fill(key="secret")
    page.press("#answer", "预测")
    page.wait(lambda: page.all("#form label"))
    page.fill(texts="一")
    driver.find_element(By.CSS_SELECTOR, "#form .go").click()
    page.wait(lambda: page.bars())
    assert page.bars() == [(*GOOD, True), (*BAD, False)]
