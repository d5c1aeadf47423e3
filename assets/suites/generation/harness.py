"""The harness: runs EleutherAI's lm-evaluation-harness, if installed, against a server of OpenAI's completions.

It runs in a process of its own and writes a file of samples for each task, which become answered examples. Its tasks
are built in, or YAML files in a user's folder (its --include_path), which need no download.
(https://github.com/EleutherAI/lm-evaluation-harness/blob/main/docs/interface.md)
"""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.assets.suites.generation.answers import AnsweredExample
from slipway.trainer.base import parsing, processes

PACKAGE = "lm_eval"
AT_ONCE = 4
"""The number of simultaneous questions."""
SAY_SECONDS = 15.0
"""Seconds between two progress messages."""
LINES = 12
"""The number of last lines of output in an error message."""
_SAMPLES = re.compile(r"samples_(.+)_\d{4}-\d{2}-\d{2}T[^/]*\.jsonl")


def version() -> str:
    """The harness's version; empty if it is not installed."""
    if not importlib.util.find_spec(PACKAGE):
        return ""
    return importlib.metadata.version("lm-eval")


@dataclass(frozen=True)
class AskedServer:
    """The server that the harness asks."""

    url: str
    model: str
    tokenizer: Path
    """The folder with the tokenizer."""
    length: int
    """The longest input of the model, in tokens."""


@dataclass(frozen=True)
class HarnessRequest:
    """The tasks for the harness, with their limits."""

    tasks: Sequence[str]
    include: str
    """A folder with the user's own tasks; empty for none."""
    examples: int
    """The most examples of each task."""
    deadline: float
    """By the monotonic clock."""


def run(
    server: AskedServer, request: HarnessRequest, into: Path, say: Callable[[str], None]
) -> dict[str, list[AnsweredExample]]:
    """Run the harness, which writes below the folder `into`; returns the answered examples of each task.

    Raises ValueError, with the last lines of its output, if it fails, and if it has not ended by the deadline, when its
    process tree is killed.
    """
    tasks = request.tasks
    command = [sys.executable, "-m", PACKAGE, "run", "--model", "local-completions", "--tasks", ",".join(tasks)]
    command += ["--model_args", _model_args(server), "--log_samples", "--limit", str(request.examples)]
    command += ["--output_path", str(into)]
    if request.include:
        command += ["--include_path", request.include]
    with tempfile.TemporaryFile("w+", errors="replace") as written:
        at_work = f"lm-evaluation-harness: {', '.join(tasks)}"
        code = _ended(command, written.fileno(), request.deadline, lambda seconds: say(f"{at_work}, {seconds:.0f} s"))
        written.seek(0)
        lines = "\n".join(written.read().strip().splitlines()[-LINES:])
    if code is None:
        raise ValueError(f"lm-evaluation-harness did not end before the deadline, and was killed:\n{lines}")
    if code:
        raise ValueError(f"lm-evaluation-harness ended with exit code {code}:\n{lines}")
    return samples(into)


def _model_args(server: AskedServer) -> str:
    """The server in the form of the harness's argument."""
    arguments = {
        "model": server.model,
        "base_url": f"{server.url}/v1/completions",
        "tokenizer": str(server.tokenizer),
        "tokenizer_backend": "huggingface",
        "max_length": str(server.length),
        "num_concurrent": str(AT_ONCE),
    }
    return ",".join(f"{key}={value}" for key, value in arguments.items())


def _ended(command: Sequence[str], output: int, deadline: float, still: Callable[[float], None]) -> int | None:
    """The exit code of a command; None if it had to be killed.

    `still` is called repeatedly with the seconds so far, because a job without new lines counts as hung.
    """
    begun = time.monotonic()
    environ = {**os.environ, "TQDM_DISABLE": "1"}
    with subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process:
        try:
            while time.monotonic() < deadline:
                still(time.monotonic() - begun)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(max(0.0, min(SAY_SECONDS, deadline - time.monotonic())))
            return None
        finally:
            if process.poll() is None:
                processes.kill_tree(process.pid)


def samples(folder: Path) -> dict[str, list[AnsweredExample]]:
    """The answered examples of each task, from the harness's files of samples below a folder."""
    samples = dict[str, list[AnsweredExample]]()
    for path in sorted(folder.rglob("samples_*.jsonl")):
        named = _SAMPLES.fullmatch(path.name)
        assert named is not None, path.name
        lines = map(parsing.value, path.read_text().splitlines())
        samples.setdefault(named[1], []).extend(row for line in lines for row in _rows(line))
    return samples


def _rows(line: Mapping[str, Any]) -> list[AnsweredExample]:
    """One answered example for each metric. Metrics that are not numbers per example (such as perplexity's sums) are
    left out."""
    first = next(iter(line["arguments"].values())) if isinstance(line["arguments"], dict) else line["arguments"][0]
    prompt = first["arg_0"] if isinstance(first, dict) else first[0]
    answer = line["filtered_resps"]
    only = answer[0] if isinstance(answer, list) and len(answer) == 1 else answer
    text = only if isinstance(only, str) else json.dumps(only)
    suffix = "" if line.get("filter", "none") == "none" else f",{line['filter']}"
    return [
        AnsweredExample(line["doc_id"], prompt, str(line["target"]), text, f"{name}{suffix}", float(line[name]))
        for name in line["metrics"]
        if isinstance(line.get(name), int | float)
    ]
