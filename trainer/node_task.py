"""A node task: what the control plane has done on a node, where that node's NVMe is.

``python -m trainer.node_task CONFIG`` does one and leaves its outcome where the configuration says; where the control
plane sees the nodes' disks itself, it calls `perform` of the same task.
"""

import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from trainer import atomic, retention, staging
from trainer.checkpoint.forecast import Sample
from trainer.progress import Report, every

FORMAT = "slipway.node-task/1"
LINE_SECONDS = 5.0
Result = dict[str, Any]
"""What a task found and did, as JSON has it."""


@dataclass(frozen=True)
class Stage:
    """Bring a snapshot to the NVMe."""

    KIND: ClassVar = "stage"
    snapshot: str
    origins: Sequence[str]
    nvme: str

    def perform(self, report: Report) -> Result:
        """A `trainer.staging.Staged`. Raises ValueError and OSError as `trainer.staging.stage` does."""
        return dataclasses.asdict(staging.stage(self.snapshot, self.origins, Path(self.nvme), report))


@dataclass(frozen=True)
class Retain:
    """Bring the NVMe under its limits."""

    KIND: ClassVar = "retain"
    nvme: str
    gigabytes: float
    days: float
    dry_run: bool

    def perform(self, report: Report) -> Result:
        """A `trainer.retention.Retained`. Raises OSError."""
        return dataclasses.asdict(retention.retain(Path(self.nvme), self.gigabytes, self.days, self.dry_run))


@dataclass(frozen=True)
class Discard:
    """Remove the checkpoints of trainings that are over: nobody restores from there any more."""

    KIND: ClassVar = "discard"
    nvme: str
    trainings: Sequence[str]

    def perform(self, report: Report) -> Result:
        """The trainings of which there were any. Raises OSError."""
        folders = [Path(self.nvme, "checkpoints", training) for training in self.trainings]
        there = [folder for folder in folders if folder.is_dir()]
        for folder in there:
            shutil.rmtree(folder)
        return {"discarded": [folder.name for folder in there]}


@dataclass(frozen=True)
class Measure:
    """Look at how full the NVMe is."""

    KIND: ClassVar = "measure"
    nvme: str

    def perform(self, report: Report) -> Result:
        """A `trainer.checkpoint.forecast.Sample`, none of a node that has no such folder yet. Raises OSError."""
        folder = Path(self.nvme)
        return {"sample": dataclasses.asdict(of_folder(folder)) if folder.is_dir() else None}


Task = Stage | Retain | Discard | Measure
_KINDS: dict[str, type[Task]] = {kind.KIND: kind for kind in (Stage, Retain, Discard, Measure)}


def of_folder(folder: Path) -> Sample:
    """What is used of the file system that a folder lies on. Raises OSError."""
    usage = shutil.disk_usage(folder)
    return Sample(time.time(), usage.total - usage.free, usage.total)


def document(task: Task, outcome: Path) -> dict[str, Any]:
    """The configuration of a task that leaves its outcome at a path."""
    return {"format": FORMAT, "task": task.KIND, "outcome": str(outcome), **dataclasses.asdict(task)}


def _of(configuration: dict[str, Any]) -> tuple[Task, Path]:
    """The task of a configuration, and where its outcome goes."""
    if configuration["format"] != FORMAT:
        raise ValueError(f"found a configuration of format {configuration['format']}, expected {FORMAT}")
    kind = _KINDS[configuration["task"]]
    fields: dict[str, Any] = {each.name: configuration[each.name] for each in dataclasses.fields(kind)}
    return kind(**fields), Path(configuration["outcome"])


def main(arguments: list[str]) -> int:
    """Do the task and leave its outcome; 1 and a message when it cannot be done."""
    try:
        task, outcome = _of(json.loads(Path(arguments[0]).read_bytes()))
        result = task.perform(every(LINE_SECONDS, lambda progress: print(f"node task: {progress}", flush=True)))
        atomic.create_only(outcome, atomic.readable_json({"result": result}))
    except (ValueError, OSError) as error:
        print(f"node task: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
