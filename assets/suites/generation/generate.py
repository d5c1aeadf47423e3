"""Generation: a registered version answers the examples of generation tasks, in a worker started by this process.

The worker is the embedded server's. It verifies every byte before it loads the model, and gets no other requests.
Without the harness only the offline tasks are available. Each task's metrics are stored before the next task begins.
One deadline covers everything: a single example may take long, but the whole must end.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.assets.suites.generation import answers, harness, offline
from slipway.assets.suites.generation.answers import AnsweredExample, TaskFigures
from slipway.serving import client
from slipway.serving.records import ServedVersion
from slipway.trainer.base import parsing, regular_file, scratch
from slipway.trainer.base.units import HOUR

TOKENS = 12
"""The most tokens of an answer to an offline task."""
RIGHT = "exact_match"


SAY_SECONDS = 10.0
"""Seconds between two progress messages."""


@dataclass(frozen=True)
class Questions:
    """The questions for a version."""

    tasks: tuple[str, ...]
    examples: int
    """The most examples of each task."""
    include: str = ""
    """A folder of the harness's tasks; empty for none."""
    hours: float = 6.0
    """The time limit for all tasks, in hours."""


def check(tasks: Sequence[str]) -> list[str]:
    """The tasks that only the harness has. Raises ValueError for such tasks if the harness is not installed."""
    foreign = [task for task in tasks if task not in offline.TASKS]
    if foreign and not harness.version():
        known = ", ".join(offline.TASKS)
        problem = (
            f"task {foreign[0]}: expected one of {known}; for all others install lm-evaluation-harness beside Slipway"
        )
        raise ValueError(f"{problem}: pip install 'lm-eval[api]'")
    return foreign


def evaluate(
    durable: Path, model: str, version: ServedVersion, questions: Questions, say: Callable[[str], None]
) -> Iterator[TaskFigures]:
    """The metrics of each task, offline ones first; `say` is called with the progress.

    Raises ValueError for an unknown task, a model that must not be served, a failure of the harness, and a deadline
    that has passed.
    """
    foreign = check(questions.tasks)
    deadline = time.monotonic() + questions.hours * HOUR
    with worker(durable, model, version) as url:
        for task in (name for name in questions.tasks if name in offline.TASKS):
            rows = _offline(url, version.named(model), task, questions, deadline, say)
            by = f"slipway, {offline.SHOTS} shots, seed 0"
            yield answers.keep(durable, version.checkpoint, task, by, rows, questions.examples)
        if foreign:
            folder = durable / version.folder
            length = parsing.value(regular_file.read(folder / "config.json"))["max_position_embeddings"]
            server = harness.AskedServer(url, version.named(model), folder, length)
            by = f"lm-evaluation-harness {harness.version()}"
            for task, rows in _foreign(server, foreign, questions, deadline, say).items():
                yield answers.keep(durable, version.checkpoint, task, by, rows, questions.examples)


def _foreign(
    server: harness.AskedServer,
    tasks: Sequence[str],
    questions: Questions,
    deadline: float,
    say: Callable[[str], None],
) -> dict[str, list[AnsweredExample]]:
    """The answered examples of the harness's tasks, by task. Raises ValueError."""
    with scratch.folder("slipway-harness") as into:
        request = harness.HarnessRequest(tasks, questions.include, questions.examples, deadline)
        samples = harness.run(server, request, into, say)
    missing = sorted(set(tasks) - samples.keys())
    if missing:
        problem = f"found samples of {', '.join(sorted(samples)) or 'nothing'}: name tasks, not groups of them"
        raise ValueError(f"task {missing[0]}: lm-evaluation-harness left no samples of it; {problem}")
    return samples


@contextlib.contextmanager
def worker(durable: Path, model: str, version: ServedVersion) -> Iterator[str]:
    """Start a worker with the verified version and yield its URL; it stops at the end. Raises ValueError."""
    name = version.named(model)
    order = {
        "folder": str(durable / version.folder),
        "manifest": version.manifest,
        "model": name,
        "fingerprint": version.fingerprint(model),
    }
    command = [
        sys.executable,
        "-P",
        "-m",
        "slipway.serving.worker",
        "--order",
        json.dumps(order),
        "--parent",
        str(os.getpid()),
    ]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            reply = parsing.value(process.stdout.readline() or "{}")
            if "url" not in reply:
                raise ValueError(f"{name}: {reply.get('refused', f'its worker ended with {process.wait()}')}")
            yield reply["url"]
        finally:
            process.terminate()


def _offline(
    url: str, name: str, task: str, questions: Questions, deadline: float, say: Callable[[str], None]
) -> list[AnsweredExample]:
    """The answered examples of an offline task. Raises ValueError once the deadline has passed."""
    rows = []
    reported_at = 0.0
    for number, prompt in enumerate(offline.prompts(task, questions.examples)):
        if time.monotonic() > deadline:
            done = f"{number} of {questions.examples} examples after {questions.hours:g} h"
            raise ValueError(f"task {task}: {done}, expected all: raise hours, or ask for fewer")
        if time.monotonic() > reported_at + SAY_SECONDS:
            reported_at = time.monotonic()
            say(f"{task}: {number} of {questions.examples} examples")
        request = {"model": name, "prompt": prompt.text, "max_tokens": TOKENS, "temperature": 0, "stop": ["\n"]}
        answer = client.complete(url, request)["choices"][0]["text"]
        right = float(offline.is_right(prompt, answer))
        rows.append(AnsweredExample(number, prompt.text, prompt.expected, answer, RIGHT, right))
    return rows
