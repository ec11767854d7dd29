"""What is on top of the encoder, one kind of task each."""
