"""What loading, tokenizers and chat templates must keep (beyond the documents)."""
