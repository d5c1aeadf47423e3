"""Replays: does steps of a training again, in processes of their own that run `trainer.replay`."""

import subprocess
import sys
import tempfile
from pathlib import Path

from resources.trainings import course, job
from resources.trainings.facts import TrainingFacts
from resources.trainings.job import Paths
from resources.trainings.store import TrainingStore
from trainer.base import atomic
from trainer.checkpoint.retention import holds


def replay(
    store: TrainingStore, paths: Paths, first: int, steps: int, ranks: int | None = None, tolerance: float | None = None
) -> int:
    """Do `steps` steps from the checkpoint of step `first` again; the exit code of `trainer.replay`, which prints.

    By default with as many ranks as trained last. The shards are staged into a scratch folder, so that no node's NVMe
    is touched. Raises ValueError for a training whose loop is a script's.
    """
    facts = store.read()
    if facts.specification.script:
        raise ValueError(f"training {store.id}: found a script's, expected one of our models: only its steps are known")
    with tempfile.TemporaryDirectory(prefix="slipway-replay-") as scratch:
        config = Path(scratch, "config.json")
        apart = Paths(paths.durable, str(Path(scratch, "nvme")), paths.backup)
        config.write_bytes(atomic.readable_json(job.configuration(facts, apart)))
        ranks = ranks or _ranks(facts)
        agent = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"] if ranks > 1 else []
        chosen = ["--from", str(first), "--steps", str(steps)]
        chosen += [] if tolerance is None else ["--tolerance", str(tolerance)]
        command = [sys.executable, "-m", *agent, "trainer.replay", str(config), *chosen]
        read = [commit.name for commit in facts.commits if first <= commit.step <= first + steps]
        with holds.held(store.folder, read, "a replay", f"it does steps {first + 1} to {first + steps} again"):
            return subprocess.call(command)


def _ranks(facts: TrainingFacts) -> int:
    """With how many ranks the training was started last."""
    worlds = [int(event["world"]) for event in course.read(facts.folder).events if event["event"] == "started"]
    return worlds[-1] if worlds else 1
