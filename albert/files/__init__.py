"""Files: of any file system, records, checkpoints, output folders."""
