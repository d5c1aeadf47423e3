"""Stands for a trainer: it takes its time."""

import time

time.sleep(600)
