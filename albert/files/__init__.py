"""Files on any file system: records, checkpoints, output folders."""
