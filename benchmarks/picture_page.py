r"""Takes screenshots of all views of a server's page, with its sample texts.

    python serve.py --model_dir=output/cluener/best &
    python benchmarks/picture_page.py --url=http://127.0.0.1:8080 \
      --output_dir=docs

Writes page_KIND.png for each model, page_grid.png, and, if the server has a
corpus, page_search.png. Needs selenium and Debian's chromium, chromium-driver
and fonts-noto-cjk.
"""

import json
import os
import shutil
import urllib.request

from absl import app, flags
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = flags.FLAGS
flags.DEFINE_string("url", "http://127.0.0.1:8080", "URL of the server.")
flags.DEFINE_string("output_dir", "docs", "Folder for the screenshots.")
flags.DEFINE_integer("width", 640, "Window width in pixels.")


def open_browser():
  options = webdriver.ChromeOptions()
  for flag in (
    "headless=new",
    "no-sandbox",
    "hide-scrollbars",
    "window-size=%d,1200" % FLAGS.width,
  ):
    options.add_argument("--" + flag)
  options.add_experimental_option("prefs", {"intl.accept_languages": "zh-CN"})
  options.binary_location = shutil.which("chromium")
  return webdriver.Chrome(
    options=options,
    service=(webdriver.chrome.service.Service(shutil.which("chromedriver"))),
  )


def take(driver, name):
  """Submits the form and writes a screenshot of the page with the response."""
  driver.find_element(By.CSS_SELECTOR, "#form .go").click()
  WebDriverWait(driver, 60).until(
    lambda _: driver.find_element(By.ID, "raw").is_displayed()
  )
  driver.find_element(By.TAG_NAME, "main").screenshot(
    os.path.join(FLAGS.output_dir, "page_%s.png" % name)
  )


def main(_):
  with urllib.request.urlopen(FLAGS.url + "/v1/models") as answer:
    models = json.load(answer)["models"]
  driver = open_browser()
  try:
    for number, model in enumerate(models):
      driver.get(FLAGS.url)
      WebDriverWait(driver, 60).until(
        lambda _: driver.find_elements(By.CSS_SELECTOR, "#form .go")
      )
      if len(models) > 1:
        driver.find_elements(By.CSS_SELECTOR, "#models button")[number].click()
      take(driver, model["kind"])
      for view, name in ((2, "grid"), (3, "search")):
        for button in driver.find_elements(
          By.CSS_SELECTOR, "#views button:nth-child(%d)" % view
        ):
          button.click()
          take(driver, name)
  finally:
    driver.quit()


if __name__ == "__main__":
  app.run(main)
