"""Tests of the command `slipway`."""
