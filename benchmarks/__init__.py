"""How fast inversion is, beside what it is measured against: `pytest benchmarks`."""
