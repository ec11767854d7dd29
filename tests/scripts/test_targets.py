"""Fine-tuning on numbers instead of labels, and on labels of unequal weight."""

import re

import numpy as np
import pytest
from scripting import results, succeed
from test_run_classifier import classify, predicted, rows, work  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.once]


def test_numbers_in_place_of_labels(work):  # noqa: F811
  """STS-B's layout; the number is how many of the two texts are long."""
  data = work / "numbers"
  data.mkdir()
  for split in ("train", "dev", "test"):
    (data / (split + ".tsv")).write_text(
        "index\tsentence1\tsentence2\tscore\n" + "".join(
            "%d\t%s\t%s\t%.1f\n" % (i, "a b" * (i % 5 + 1), "c " * (i % 3 + 1),
                                    i % 5 + 0.5) for i in range(64)))
  succeed(*classify(
      work, "rated", "--task_name=sts-b", "--data_dir=%s" % data,
      "--do_train", "--do_eval", "--do_predict", "--num_train_epochs=12",
      "--learning_rate=0.003"))
  found = results(work / "rated")
  assert set(found) == {"eval_loss", "eval_pearson", "eval_spearman",
                        "eval_mse", "loss", "global_step"}
  assert rows(work / "rated")[0] == ["score", "text_a", "text_b"]
  scores = predicted(work / "rated")[:, 0]
  truth = np.arange(64) % 5 + 0.5
  assert found["eval_pearson"] == pytest.approx(
      np.corrcoef(scores, truth)[0, 1], abs=1e-4)
  assert found["eval_loss"] == pytest.approx(
      ((scores - truth)**2).mean(), rel=1e-4)
  assert found["eval_pearson"] > 0.7
  assert rows(work / "rated", "STS-B.tsv") == [["index", "prediction"]] + [
      [str(i), "%.3f" % number] for i, number in enumerate(scores)]
  succeed(*classify(
      work, "own_numbers", "--task_name=tsv", "--data_dir=%s" % data,
      "--text_a_field=sentence1", "--text_b_field=sentence2", "--regression",
      "--do_eval", "--init_checkpoint=%s" % (work / "rated" / "best")))
  assert results(work / "own_numbers")["eval_mse"] == pytest.approx(
      results(work / "rated" / "best")["eval_mse"], rel=1e-4)


def test_class_weights(work):  # noqa: F811
  """Of one example a step, the loss is its own by its label's weight."""
  data = work / "unbalanced"
  data.mkdir()
  labels = np.arange(32) % 4 // 3
  for split in ("train", "dev", "test"):
    (data / (split + ".tsv")).write_text("text_a\tlabel\n" + "".join(
        "%s\t%d\n" % ("a b " * (i % 7 + 1), label)
        for i, label in enumerate(labels)))
  _, log = succeed(*classify(
      work, "weighted", "--task_name=tsv", "--data_dir=%s" % data,
      "--pad_to_max", "--train_batch_size=1", "--learning_rate=1e-9",
      "--do_train",
      "--do_eval", "--do_predict", "--log_steps=1",
      "--class_weights=balanced"))
  assert "weights of the labels: 0 0.6667, 1 2" in log
  losses = np.array(re.findall(
      r"1: loss ([\d.]+) .* example_loss ([\d.]+) ", log), float)
  np.testing.assert_allclose(np.sort(losses[:, 0] / losses[:, 1]),
                             [2 / 3] * 24 + [2] * 8, rtol=0.01)
  probabilities = predicted(work / "weighted")
  assert results(work / "weighted" / "best")["eval_loss"] == pytest.approx(
      -np.log(probabilities[np.arange(32), labels]).mean(), rel=1e-4)
