"""What every other module may use: files, checkpoints, records, messages."""
