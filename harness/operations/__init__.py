"""What claims do to a model: padding, caches, generation, decoding, walks, inversion."""
