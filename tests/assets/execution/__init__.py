"""Tests of how the steps of a run are executed, and of what becomes of their errors."""
