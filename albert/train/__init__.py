"""Training: settings, the step, the loop, fine-tuning."""
