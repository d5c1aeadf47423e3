"""Generation: a registered version answers the examples of generation tasks, from a worker beside this process.

The worker is the embedded server's: it verifies every byte before it loads, and no traffic of people meets it. Without
the harness there are the offline tasks; each task's figures are kept before the next one begins. All of it has one
deadline: an example of a task may take long, a model that never ends must not.
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
"""Of an answer to an offline task, at most."""
RIGHT = "exact_match"


SAY_SECONDS = 10.0
"""Between two lines about how far a task is."""


@dataclass(frozen=True)
class Questions:
    """What a version is asked."""

    tasks: tuple[str, ...]
    examples: int
    """Of each task, at most."""
    include: str = ""
    """A folder of the harness's tasks; empty for none."""
    hours: float = 6.0
    """What all of it may take."""


def check(tasks: Sequence[str]) -> list[str]:
    """The tasks that only the harness has. Raises ValueError for such where it is not installed."""
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
    """The figures of each task, offline ones first; `say` is called with how far it is.

    Raises ValueError for a task that is not known, a model that must not be served, a harness that fails, and a
    deadline that has passed.
    """
    foreign, deadline = check(questions.tasks), time.monotonic() + questions.hours * HOUR
    with worker(durable, model, version) as url:
        for task in (name for name in questions.tasks if name in offline.TASKS):
            rows = _offline(url, version.named(model), task, questions, deadline, say)
            by = f"slipway, {offline.SHOTS} shots, seed 0"
            yield answers.keep(durable, version.checkpoint, task, by, rows, questions.examples)
        if foreign:
            yield from _foreign(url, durable, model, version, foreign, questions, deadline, say)


def _foreign(
    url: str, durable: Path, model: str, version: ServedVersion, tasks: Sequence[str], questions: Questions,
    deadline: float, say: Callable[[str], None],
) -> Iterator[TaskFigures]:  # fmt: skip
    """The figures of the harness's tasks. Raises ValueError."""
    folder, by = durable / version.folder, f"lm-evaluation-harness {harness.version()}"
    length = parsing.value(regular_file.read(folder / "config.json"))["max_position_embeddings"]
    with scratch.folder("slipway-harness") as into:
        server = harness.AskedServer(url, version.named(model), folder, length)
        samples = harness.run(server, tasks, questions.include, questions.examples, into, deadline, say)
    if missing := sorted(set(tasks) - samples.keys()):
        problem = f"found samples of {', '.join(sorted(samples)) or 'nothing'}: name tasks, not groups of them"
        raise ValueError(f"task {missing[0]}: lm-evaluation-harness left no samples of it; {problem}")
    for task, rows in samples.items():
        yield answers.keep(durable, version.checkpoint, task, by, rows, questions.examples)


@contextlib.contextmanager
def worker(durable: Path, model: str, version: ServedVersion) -> Iterator[str]:
    """The URL of a worker that has loaded the verified version; it ends at the end. Raises ValueError."""
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
    """Raises ValueError once the deadline has passed."""
    rows, reported_at = [], 0.0
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
