"""Replays: does steps of a training again, in processes of their own that run `slipway.trainer.replay`.

A replay is a branch that keeps nothing, and is compared with what its parent did.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import IO, Any

from slipway.resources.trainings import branching, course, job
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import Paths
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import atomic, scratch
from slipway.trainer.checkpoint.retention import holds

WITHIN_TOLERANCE = 3
"""The exit code of `slipway.trainer.replay` for steps that differ by less than the tolerance; 0 is for equal ones."""


def replay(
    store: TrainingStore,
    paths: Paths,
    first: int,
    steps: int,
    ranks: int | None = None,
    tolerance: float | None = None,
    changes: Mapping[str, Any] | None = None,
    as_json: bool = False,
    output: IO[str] | None = None,
) -> int:
    """Do `steps` steps from the checkpoint of step `first` again; the exit code of `slipway.trainer.replay`, which
    prints.

    It prints into `output`, None for where this process does, what is wrong too where it is given.

    By default with as many ranks as trained last. The shards are staged into a scratch folder, so that no node's NVMe
    is touched. `changes` are fields that are set otherwise. Raises ValueError for a training whose loop is a script's,
    for a step without a checkpoint, with the nearest ones, and where retention removes one that is read.
    """
    facts = store.read()
    if facts.specification.script:
        raise ValueError(f"training {store.id}: found a script's, expected one of our models: only its steps are known")
    branching.commit_at(store, first)
    with scratch.folder("slipway-replay") as place:
        config = place / "config.json"
        apart = Paths(paths.durable, str(place / "nvme"), paths.backup)
        config.write_bytes(atomic.readable_json(job.configuration(facts, apart)))
        ranks = ranks or _ranks(facts)
        python = [sys.executable, "-P", "-m"]
        agent = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "--no-python", *python]
        chosen = ["--from", str(first), "--steps", str(steps)]
        chosen += [] if tolerance is None else ["--tolerance", str(tolerance)]
        chosen += ["--set", json.dumps(changes)] if changes else []
        chosen += ["--json"] if as_json else []
        command = [*python, *(agent if ranks > 1 else []), "slipway.trainer.replay", str(config), *chosen]
        read = [commit.name for commit in facts.commits if first <= commit.step <= first + steps]
        with holds.held(store.folder, read, "a replay", f"it does steps {first + 1} to {first + steps} again"):
            holds.require_kept(store.folder, read)
            return subprocess.call(command, stdout=output, stderr=output and subprocess.STDOUT)


def _ranks(facts: TrainingFacts) -> int:
    """With how many ranks the training was started last."""
    worlds = [int(event["world"]) for event in course.read(facts.folder).events if event["event"] == "started"]
    return worlds[-1] if worlds else 1
