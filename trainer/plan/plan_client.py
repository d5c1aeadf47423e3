"""Asking: a plan's measure for a process that does not import torch; answers are cached by the question's digest.

The measure runs in its own process. The answer depends on the question, on the trainer's code and on the version of
torch, so the key of the cache has all three.
"""

import functools
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import atomic, codec, digest, parsing, regular_file
from slipway.trainer.base.paths import CODE
from slipway.trainer.plan import question as questions
from slipway.trainer.plan.measure import StageMeasure
from slipway.trainer.plan.question import Question

TRAINER = Path(__file__).parents[1]
FORMAT = "slipway.plan/1"
SECONDS = 600.0
"""A measure that takes longer than this is given up."""


class NotPlanned(Exception):
    """The measure failed although the question is a good one: nothing is known about the training's memory."""


@dataclass(frozen=True)
class KeptMeasure:
    """The file of an answer."""

    stages: Sequence[StageMeasure]


def ask(question: Question, folder: Path | None = None, seconds: float = SECONDS) -> Sequence[StageMeasure]:
    """The measure of each stage, cached in `folder` if it is given.

    Raises ValueError for a layout that does not fit, and NotPlanned if the trainer's code cannot run without memory.
    """
    _ = question.mesh
    path = folder / f"{_key(question)}.json" if folder else None
    cache_entry = codec.read_if_whole(path, KeptMeasure, FORMAT) if path else None
    if cache_entry is not None:
        return cache_entry.stages
    measures = _run(question, seconds)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        codec.replace(path, KeptMeasure(measures), FORMAT)
    return measures


def _run(question: Question, seconds: float) -> Sequence[StageMeasure]:
    command = [sys.executable, "-P", "-m", "slipway.trainer.plan"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    paths = [str(CODE), *filter(None, [environment.get("PYTHONPATH", "")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    document = json.dumps(questions.document(question))
    try:
        done = subprocess.run(command, input=document, capture_output=True, text=True, env=environment, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise NotPlanned(f"the plan took longer than {seconds:.0f} s") from None
    error_lines = done.stderr.strip().splitlines()
    if done.returncode == 2 and error_lines:
        raise ValueError(error_lines[-1])
    if done.returncode:
        why = error_lines[-1] if error_lines else f"exit code {done.returncode}"
        raise NotPlanned(
            f"the model's code cannot be run without memory ({why}); "
            "nothing is known of what it takes, and a training can be started all the same"
        )
    return [codec.build(StageMeasure, fields) for fields in parsing.value(done.stdout.splitlines()[-1])]


def _key(question: Question) -> str:
    torch = importlib.metadata.version("torch")
    return digest.sha256(atomic.canonical_json([question.digest, _code(), torch]))[:32]


@functools.cache
def _code() -> str:
    """The digest of the trainer's sources."""
    sources = sorted(TRAINER.rglob("*.py"))
    return digest.sha256(b"\0".join(regular_file.read(source) for source in sources))
