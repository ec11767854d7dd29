"""Models that stay warm and predict texts; `load` is the way to all of them."""

from albert.predict.predictors import load as load
