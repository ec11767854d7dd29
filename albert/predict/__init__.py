"""Models that stay warm and predict texts."""
