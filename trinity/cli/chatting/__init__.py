"""The interactive part of `trinity chat`: read input, run commands, show responses."""
