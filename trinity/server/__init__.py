"""The HTTP server: a file for each API's endpoints over one kind of job, which the model answers."""
