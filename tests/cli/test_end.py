"""The end of the command's process: all that is to be done is done, and nothing is taken apart afterwards."""

import os
import subprocess
import sys

PROGRAM = """
import atexit, os, sys, threading
from slipway.cli import __main__

class Kept:
    def __del__(self):
        os.write(1, b"taken apart\\n")

kept = Kept()
sys.modules["kept"] = kept

def main():
    threading.Thread(target=lambda: (threading.main_thread().join(), print("a thread has ended"))).start()
    atexit.register(print, "what is registered is done")
    print("the last word")
    %s

__main__.main = main
__main__.command()
"""


def ended(last: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", PROGRAM % last], capture_output=True, text=True, timeout=60)


def test_the_process_ends_once_its_threads_have_and_takes_nothing_apart():
    done = ended("return 2")
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout == "the last word\na thread has ended\nwhat is registered is done\n"


def test_a_mistake_of_ours_still_shows_its_stack():
    done = ended("raise LookupError('ours')")
    assert done.returncode == 1 and done.stderr.endswith("LookupError: ours\n")


def test_a_reader_who_has_gone_is_no_success():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM % "return 0"], stdout=write, stderr=subprocess.PIPE, timeout=60
    )
    os.close(write)
    assert done.returncode != 0 and b"BrokenPipeError" in done.stderr
