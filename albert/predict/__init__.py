"""Inference with models kept in memory; `load` returns one of any kind."""

from albert.predict.predictors import load as load
