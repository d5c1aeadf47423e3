"""Promotion: evaluates checkpoints, compares two models on the same examples, and checks a recipe's policy."""
