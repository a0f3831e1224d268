"""Ways of running a model: training, serving, compiling, adapters (beyond the documents)."""
