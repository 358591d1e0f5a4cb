"""Chooses each token from its logits: options, samplers in order, draws, probabilities."""
