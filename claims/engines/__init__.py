"""What serves a model gives the model's scores, tokens and texts (beyond the documents)."""
