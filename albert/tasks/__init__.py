"""What each task is: reading its files, making examples, judging answers."""
