"""The library of the scripts at the top."""
