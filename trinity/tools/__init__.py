"""Functions of the commands that the public API lacks: measure, compare, convert, verify."""
