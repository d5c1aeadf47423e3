"""Preflight: measures whether the hardware performs as it should, before a training runs on it."""
