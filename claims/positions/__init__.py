"""Positions: permuted, shifted, scaled, and the structure of their table (000 and 002)."""
