"""The embedded instance as a person has it: a folder of recipes, a home, and the command line."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slipway.resources.home import Home
from slipway.trainer.base import processes
from tests.conftest import Marked, is_asked_to_end

ROOT = Path(__file__).parents[2]
RECIPES = Path(__file__).with_name("recipes")
DATASET, TRAINING, SWEEP = "datasets/small-texts.yaml", "trainings/small-decoder.yaml", "sweeps/small-decoder.yaml"
MARK = "SLIPWAY_TEST"
PATIENCE_SECONDS = 500.0
"""What the demo may take on a machine with other things to do; it takes a tenth of that on a quiet one."""
ENDING_SECONDS = 300.0
"""Between a Ctrl-C and the end: a last checkpoint, and Dagster's own leave-taking; more than a busy machine takes."""
TEXTS = 100
SENTENCE = "A shard holds tokens and a node reads them while the loss of step {} goes from {} down to {}.\n"


class Slipway:
    """One home and one folder of recipes, both below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.recipes = folder / "recipes"
        self.corpus = self.recipes / "corpus"
        shutil.copytree(RECIPES, self.recipes)
        write_corpus(self.corpus)
        self.environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SLIPWAY_RECIPES": str(self.recipes),
            "COLUMNS": "400",  # no path is folded
            "SLIPWAY_MLFLOW_PORT": "off",  # whoever tests MLflow's pages has them
            MARK: str(folder),
        }
        self.environ.pop("SLIPWAY_PORT", None)

    def edit(self, file: str, old: str, new: str) -> int:
        """Replace the one place of a recipe where `old` stands; returns its line."""
        path = self.recipes / file
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
        return text[: text.index(old)].count("\n") + 1

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`slipway ...` to its end."""
        process = self.start(*arguments)
        try:
            output, errors = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.end_all()
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, output, errors)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The same, begun; in a process group of its own, as a terminal has it."""
        return subprocess.Popen(
            [sys.executable, "-m", "slipway.cli", *arguments],
            env={**self.environ, "SLIPWAY_HOME": str(self.home.root)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def refusal(self, *arguments: str) -> str:
        """The one line that a command which must fail says, without its "slipway: "."""
        result = self.run(*arguments)
        assert result.returncode == 1
        assert result.stdout == ""
        assert result.stderr.startswith("slipway: ") and result.stderr.count("\n") == 1, result.stderr
        assert self.pids() == []
        return result.stderr.removeprefix("slipway: ").removesuffix("\n")

    def pids(self) -> list[int]:
        """The live processes that this one's commands have started, directly or not."""
        return processes.carrying({MARK: self.environ[MARK]})

    def ranks(self) -> list[int]:
        return Marked({MARK: self.environ[MARK]}).running("slipway.trainer")

    def end_all(self) -> list[int]:
        """Kill what is left, so that a failed test leaves nothing behind; returns what was."""
        survivors = self.pids()
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)
        return survivors


def interrupt(process: subprocess.Popen[str], rank: int | None = None) -> tuple[int, str, str]:
    """Ctrl-C: the signal goes to the whole group. Returns the exit code and what was printed.

    `rank` is held until it is asked to end, so that its training is not over before.
    """
    if rank is not None:
        os.kill(rank, signal.SIGSTOP)
    os.killpg(process.pid, signal.SIGINT)
    if rank is not None:
        until(lambda: is_asked_to_end(rank), process)
        os.kill(rank, signal.SIGCONT)
    output, errors = process.communicate(timeout=ENDING_SECONDS)
    return process.returncode, output, errors


def printed_until(process: subprocess.Popen[str], text: str) -> None:
    """Read what the process prints up to the line with `text`; fail when it ends without."""
    assert process.stdout is not None
    lines = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return
        assert time.monotonic() < deadline
    raise AssertionError(f"it ended without {text!r}: {''.join(lines)}")


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for the condition; fail when the process ends before."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def write_corpus(folder: Path) -> None:
    folder.mkdir()
    for number in range(TEXTS):
        numbers: Iterator[tuple[int, int, int]] = (
            (line, number * line % 7, number + line % 5) for line in range(1, 21)
        )
        (folder / f"text-{number:03d}.txt").write_text("".join(SENTENCE.format(*values) for values in numbers))


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
