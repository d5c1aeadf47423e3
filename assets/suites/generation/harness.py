"""The harness: EleutherAI's lm-evaluation-harness, where it is installed, asks a server of OpenAI's completions.

It runs in a process of its own and leaves a file of samples for each task, which become our rows. Its tasks are its
own, or YAML files in a folder of one's own (its --include_path), which need no download.
(https://github.com/EleutherAI/lm-evaluation-harness/blob/main/docs/interface.md)
"""

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
"""Questions under way."""
SAY_SECONDS = 15.0
"""Between two words that it is still at work."""
LINES = 12
"""Last lines of its output that a message of its failure shows."""
_SAMPLES = re.compile(r"samples_(.+)_\d{4}-\d{2}-\d{2}T[^/]*\.jsonl")


def version() -> str:
    """Its version; "" where it is not installed."""
    return importlib.metadata.version("lm-eval") if importlib.util.find_spec(PACKAGE) else ""


@dataclass(frozen=True)
class AskedServer:
    """Whom the harness asks."""

    url: str
    model: str
    tokenizer: Path
    """The folder that has it."""
    length: int
    """Tokens that the model reads."""


def run(
    server: AskedServer, tasks: Sequence[str], include: str, most: int, into: Path, deadline: float,
    say: Callable[[str], None],
) -> dict[str, list[AnsweredExample]]:  # fmt: skip
    """The rows of each task, from at most so many examples of it; the harness writes below the folder `into`.

    `deadline` is a moment of the monotonic clock. Raises ValueError with its last lines where it fails, and where it
    has not ended by then: it is killed with all below it.
    """
    command = [sys.executable, "-m", PACKAGE, "run", "--model", "local-completions", "--tasks", ",".join(tasks)]
    command += ["--model_args", _model_args(server), "--log_samples", "--limit", str(most), "--output_path", str(into)]
    command += ["--include_path", include] if include else []
    with tempfile.TemporaryFile("w+", errors="replace") as written:
        at_work = f"lm-evaluation-harness: {', '.join(tasks)}"
        code = _ended(command, written.fileno(), deadline, lambda seconds: say(f"{at_work}, {seconds:.0f} s"))
        written.seek(0)
        lines = "\n".join(written.read().strip().splitlines()[-LINES:])
    if code is None:
        raise ValueError(f"lm-evaluation-harness did not end before the deadline, and was killed:\n{lines}")
    if code:
        raise ValueError(f"lm-evaluation-harness ended with exit code {code}:\n{lines}")
    return samples(into)


def _model_args(server: AskedServer) -> str:
    """The server as the harness's argument."""
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
    """The exit code of a command; None for one that had to be killed.

    `still` is given the seconds so far, again and again: a job whose lines do not change counts as silent.
    """
    begun = time.monotonic()
    environ = {**os.environ, "TQDM_DISABLE": "1"}
    with subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as process:
        try:
            while (remaining := deadline - time.monotonic()) > 0:
                still(time.monotonic() - begun)
                try:
                    return process.wait(min(SAY_SECONDS, remaining))
                except subprocess.TimeoutExpired:
                    continue
            return None
        finally:
            if process.poll() is None:
                processes.kill_tree(process.pid)


def samples(folder: Path) -> dict[str, list[AnsweredExample]]:
    """The rows of each task of which the harness left samples below a folder."""
    samples = dict[str, list[AnsweredExample]]()
    for path in sorted(folder.rglob("samples_*.jsonl")):
        named = _SAMPLES.fullmatch(path.name)
        assert named is not None, path.name
        lines = map(parsing.value, path.read_text().splitlines())
        samples.setdefault(named[1], []).extend(row for line in lines for row in _rows(line))
    return samples


def _rows(line: Mapping[str, Any]) -> list[AnsweredExample]:
    """One for each metric; a metric that is no number of one example (such as a perplexity's sums) has none."""
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
