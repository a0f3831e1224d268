"""Measures how fast inversion is, compared with baselines: `pytest benchmarks`."""
