"""The tasks: read their files, make examples, score predictions."""
