"""Decoding embeddings into tokens, and the pseudo-inverse (document 003, equation 3)."""
