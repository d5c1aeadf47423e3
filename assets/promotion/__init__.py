"""Promotion: evaluating checkpoints, comparing two models on the same examples, and the checks of a policy."""
