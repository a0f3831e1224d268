"""Directions along which an input moves and the output stays (document 003)."""
