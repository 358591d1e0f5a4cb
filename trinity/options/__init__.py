"""Options: how they are declared and checked, and those of ``trinity.load``."""
