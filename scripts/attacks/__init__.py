"""Attacks on a server, for scripts/fairness.py: one function each, in the files of this folder."""
