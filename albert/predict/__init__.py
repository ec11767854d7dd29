"""Inference with models kept in memory; `load` handles every task."""

from albert.predict.predictors import load as load
