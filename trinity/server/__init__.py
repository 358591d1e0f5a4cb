"""The HTTP server: a file for each API's endpoints, over jobs that the model answers."""
