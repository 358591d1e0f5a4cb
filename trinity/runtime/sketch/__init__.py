"""The sketch of the output head: a small copy that finds which logits can be the largest."""
