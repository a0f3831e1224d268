"""One small interface to any model: its capabilities, how it is loaded, and passes through it."""
