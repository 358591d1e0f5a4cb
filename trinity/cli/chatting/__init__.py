"""What `trinity chat` does with what is typed: read it, run commands, show answers."""
