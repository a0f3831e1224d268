"""One small interface to any model: what it offers, how it is loaded, and passes through it."""
