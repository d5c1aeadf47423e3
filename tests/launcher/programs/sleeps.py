"""A rank that sleeps, and treats every signal as processes do that have made no plans."""

import time

from tests.launcher.programs import start

start()
time.sleep(600)
