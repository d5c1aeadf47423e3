"""Tests of what the platform exports."""
