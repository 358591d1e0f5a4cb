"""A value of the key pooling_type. Source: llama.cpp, enum llama_pooling_type."""

RANKS = 4  # a classifier makes a score of the text
