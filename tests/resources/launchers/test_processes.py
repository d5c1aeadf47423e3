"""Parents and descendants: which processes die together, and that no descendant is left."""

import os
import subprocess
import sys
from pathlib import Path

from slipway.trainer.base import processes
from tests.conftest import Marked, until


def run(script: str) -> str:
    """The output of a Python script in a process of its own."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_a_child_dies_with_its_parent(marked: Marked):
    run("""
import os, time
from slipway.trainer.base import processes
reading, writing = os.pipe()
if os.fork() == 0:
    processes.die_with_parent()
    os.close(1); os.close(2); os.write(writing, b"bound")
    time.sleep(600)
os.read(reading, 5)
""")
    marked.until_gone()


def test_a_child_whose_parent_is_dead_already_dies_at_once(marked: Marked):
    assert (
        run("""
import os, time
from slipway.trainer.base import processes
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        time.sleep(0.001)
    processes.die_with_parent(parent)
    print("survived")
""")
        == ""
    )
    marked.until_gone()


def test_no_descendant_is_left_neither_orphan_nor_foreign_session_nor_zombie():
    assert (
        run("""
import os, subprocess, sys, time
from slipway.trainer.base import processes
processes.adopt_orphans()
orphan = "import os, time; os.setsid(); os.fork() or os.setsid(); os.fork() and os._exit(0); time.sleep(600)"
subprocess.run([sys.executable, "-c", orphan], check=True)
zombie = subprocess.Popen(["true"])
assert len(processes.descendants(os.getpid())) >= 3
print(processes.kill_descendants(), processes.descendants(os.getpid()))
""")
        == "[] []\n"
    )


def test_processes_are_found_by_the_environment_they_were_started_with(marked: Marked):
    sleeper = subprocess.Popen(["sleep", "600"])
    assert until(marked.pids, "its environment to be there") == [sleeper.pid]
    assert sleeper.pid in processes.children(os.getpid())
    assert processes.carrying(marked.mark | {"ANOTHER": "one"}) == []
    assert processes.parent_of(sleeper.pid) == os.getpid()
    sleeper.kill()
    sleeper.wait()
    assert processes.parent_of(sleeper.pid) is None


def test_a_name_with_brackets_and_blanks_does_not_hide_the_parent(tmp_path: Path):
    odd = tmp_path / "a) b (c"
    odd.symlink_to("/bin/sleep")
    sleeper = subprocess.Popen([odd, "600"])
    assert processes.parent_of(sleeper.pid) == os.getpid()
    sleeper.kill()
    sleeper.wait()
