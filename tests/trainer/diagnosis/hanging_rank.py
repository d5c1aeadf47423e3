"""A rank that answers to its node's process, and waits in C for ever: for a lock, or for a pipe."""

import os
import sys
import threading

from slipway.trainer.diagnosis import stacks


def hang() -> None:
    if sys.argv[1] == "lock":
        threading.Lock().acquire() and (lock := threading.Lock()).acquire() and lock.acquire()
    os.read(os.pipe()[0], 1)


if __name__ == "__main__":
    stacks.open_file()
    print("ready", flush=True)
    hang()
