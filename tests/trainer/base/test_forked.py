"""Forked processes: to others each is the command in whose place it runs, and it ends as that would."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.conftest import Marked, until

BEGIN = """
import os, signal, sys, time
from slipway.trainer.base.forked import Forked, show_words
show_words(["server"])
def sleeps():
    time.sleep(600)
    return 0
"""


def run(script: str) -> str:
    """The output of a script that has room for the words and the environment of those that it forks."""
    environment = {**os.environ, "ROOM": " " * 1000}
    command = [sys.executable, "-c", BEGIN + script, " " * 1000]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def test_others_see_the_command_and_the_environment_that_it_stands_for(tmp_path: Path):
    assert (
        run(f"""
from slipway.trainer.base import processes
words = [sys.executable, "-m", "some.module", "argument"]
own = {{"SLIPWAY_ODD": "one", "PATH": os.environ["PATH"]}}
forked = Forked(sleeps, words, own, folder={str(tmp_path)!r})
while processes.running("-m", "some.module", "argument") != [forked.pid]:
    time.sleep(0.01)
print(processes.carrying({{"SLIPWAY_ODD": "one"}}) == [forked.pid], "ROOM" in os.environ)
print(os.readlink(f"/proc/{{forked.pid}}/cwd") == {str(tmp_path)!r})
""")
        == "True True\nTrue\n"
    )


def test_its_own_environment_and_that_of_its_children_is_the_one_it_was_given():
    assert (
        run("""
def tells():
    print("ROOM" in os.environ, os.environ["GIVEN"], flush=True)
    return os.system("test \\"$GIVEN\\" = one && test -z \\"$ROOM\\"")
forked = Forked(tells, ["teller"], {"GIVEN": "one", "PATH": os.environ["PATH"]})
print(forked.wait(60))
""")
        == "False one\n0\n"
    )


def test_its_exit_code_is_that_of_its_main_or_its_signal():
    assert (
        run("""
import subprocess
def fails():
    raise SystemExit(7)
print(Forked(fails, [], dict(os.environ)).wait(60))
sleeper = Forked(sleeps, [], dict(os.environ))
try:
    sleeper.wait(0.01)
except subprocess.TimeoutExpired:
    print("runs", sleeper.poll())
sleeper.send_signal(signal.SIGTERM)
print(sleeper.wait(60), sleeper.wait(0))
""")
        == "7\nruns None\n-15 -15\n"
    )


def test_it_dies_with_its_parent_unless_it_shall_outlive_it(marked: Marked):
    pid = int(
        run("""
Forked(sleeps, [], dict(os.environ))
print(Forked(sleeps, [], dict(os.environ), output=os.open(os.devnull, os.O_WRONLY), dies_by=None).pid)
""")
    )
    until(lambda: marked.pids() == [pid], "the one that is bound to its parent to die")
    os.kill(pid, signal.SIGKILL)
    marked.until_gone()
