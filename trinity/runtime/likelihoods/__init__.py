"""Likelihoods of given texts: log-probabilities of tokens, perplexity."""
