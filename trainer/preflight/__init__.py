"""Preflight: does this hardware give what it should, measured before a training is trusted to it."""
