"""Datasets of texts: segments, documents, tokenizer, tokens, snapshot, checks and metadata."""
