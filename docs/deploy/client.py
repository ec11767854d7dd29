"""A client of serve.py that tries again, in Python's standard library.

    python docs/deploy/client.py --key=KEY 高铁通到了县城 \\
      http://127.0.0.1:8080/v1/models/my_task:predict
"""

import argparse
import json
import time
import urllib.error
import urllib.request


def predict(url, texts, key=None, tries=5, timeout=70):
  """Returns the predictions of texts.

  Tries again where the server is busy (503) or cannot be reached, after the
  seconds that it asks for, or twice as many each time.
  """
  headers = {"Content-Type": "application/json"}
  if key:
    headers["Authorization"] = "Bearer " + key
  body = json.dumps({"instances": texts}).encode()
  for number in range(tries):
    try:
      request = urllib.request.Request(url, body, headers)
      with urllib.request.urlopen(request, timeout=timeout) as response:
        return json.load(response)["predictions"]
    except urllib.error.HTTPError as error:
      if error.code != 503 or number == tries - 1:
        raise RuntimeError("%s: %s" % (error, error.read().decode())) from error
      wait = float(error.headers.get("Retry-After", 2**number))
    except urllib.error.URLError:
      if number == tries - 1:
        raise
      wait = 2**number
    time.sleep(wait)


if __name__ == "__main__":
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("texts", nargs="+")
  parser.add_argument("url")
  parser.add_argument("--key")
  args = parser.parse_args()
  for row in predict(args.url, args.texts, args.key):
    print(json.dumps(row, ensure_ascii=False))
