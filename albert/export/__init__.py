"""Export formats: SavedModel, TFLite, ONNX, transformers."""
