"""Exports models to other formats: SavedModel, TFLite, ONNX, transformers."""
