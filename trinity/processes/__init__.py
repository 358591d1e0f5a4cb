"""The command line's process, and confined child processes for untrusted input."""
