"""Fuzzing of every reader: cases made from seeds, run on as far as they get, in watched workers.

``case`` is what a case may do and what is measured of it, ``targets`` the kinds of cases,
``worker`` runs them, ``watch`` starts workers and sees them die. scripts/fuzz.py is the command.
"""
