"""Crash drills: the real daemon, webserver, runs and trainers, killed at the worst moments."""
