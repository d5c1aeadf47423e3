"""Builds in separate processes that tests kill, forked from a process with all imports done.

`python -m tests.assets.datasets.forked` is that process. It reads a line of JSON for each build from standard input,
and writes the pid of the build, then its exit status.
"""

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from slipway.assets.datasets.reading import sources
from slipway.recipes.dataset import DatasetRecipe
from tests.assets.datasets.builds import build

MARK = "SLIPWAY_BUILD"
"""Variable in the environment of the processes that a build starts: the build's pid."""
Settings = Mapping[str, int | str]
"""Constants of the modules of slipway.assets.datasets, as MODULE.NAME."""
WITH_WORKERS: Settings = {"building.workers.WORTH_A_PROCESS": 0, "documents.extraction.UNIT_FILES": 4}
"""Settings with which a small corpus makes work for several workers."""
WITHOUT: Settings = {"building.workers.WORTH_A_PROCESS": sys.maxsize, "documents.extraction.UNIT_FILES": 4}


class Forker:
    """The test's side: starts one build at a time."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None and process.stdout is not None
        self._requests: IO[str] = process.stdin
        self._answers: IO[str] = process.stdout

    def start(self, recipe: DatasetRecipe, durable: Path, settings: Settings) -> int:
        """Start a build with other constants; gives its pid, which its workers have in their environment as `MARK`."""
        request = {"recipe": recipe.model_dump(mode="json"), "durable": str(durable), "settings": settings}
        print(json.dumps(request), file=self._requests, flush=True)
        return int(self._answers.readline())

    def status(self) -> int:
        """The exit status of the build, once it has ended; minus the signal that killed it."""
        return int(self._answers.readline())


@contextmanager
def forker() -> Iterator[Forker]:
    """A process that builds are forked from; it ends when its standard input does."""
    command = [sys.executable, "-m", "tests.assets.datasets.forked"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True) as process:
        yield Forker(process)
        assert process.stdin is not None
        process.stdin.close()


def main() -> None:
    sources.SETTLED_SECONDS = -1.0
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(_build(request))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _build(request: dict[str, Any]) -> int:
    os.environ[MARK] = str(os.getpid())
    try:
        for name, value in request["settings"].items():
            module, _, constant = name.rpartition(".")
            setattr(importlib.import_module(f"slipway.assets.datasets.{module}"), constant, value)
        build(DatasetRecipe.model_validate_json(json.dumps(request["recipe"])), Path(request["durable"]))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
