"""The graph around the model: heads, training, several devices, prediction."""
