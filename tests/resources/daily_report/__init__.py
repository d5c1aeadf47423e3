"""Tests of the report of a night."""
