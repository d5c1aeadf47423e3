"""Families: how models of `transformers` are described and stored, a file for each kind; `table` has them all."""
