"""Promotions of models: the only operation that promotes, its holds, its log, and the records of models."""
