"""Promotions of models: the one operation that promotes, what holds it back, its log, and records of models."""
