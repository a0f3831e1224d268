"""Inputs recovered from a block's output, by descent and by exact search (document 003)."""
