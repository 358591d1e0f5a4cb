"""Speculation: proposes tokens that one step then computes together."""
