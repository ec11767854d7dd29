"""Configuration, variable layouts and faster kernels of the model."""
