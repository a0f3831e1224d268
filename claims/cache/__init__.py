"""Causality, and ways to the same outputs: caches, chunks, padding, masks (document 004)."""
