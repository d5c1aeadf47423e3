"""Node tasks: work that the control plane gives to a node, because only that node sees its NVMe.

``python -m slipway.trainer.node_task CONFIG`` does one and writes its outcome to the path that the configuration names.
If the control plane can reach the nodes' disks itself, it calls `perform` of the same task.
"""

import contextlib
import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from slipway.trainer.base import codec, console, parsing, paths, processes, regular_file, removal
from slipway.trainer.base.progress import OnProgress, every
from slipway.trainer.checkpoint.retention import nvme as checkpoints
from slipway.trainer.checkpoint.retention.forecast import Sample
from slipway.trainer.checkpoint.tiers.tier import TierUnavailable
from slipway.trainer.staging import retention, stage

FORMAT = "slipway.node-task/1"
LINE_SECONDS = 5.0
GRACE_SECONDS = 300.0
"""Beyond the time for measuring: for imports on a busy machine, and for ranks to meet."""
Result = dict[str, Any]
"""The result of a task: a JSON object."""


@dataclass(frozen=True)
class StageTask:
    """Bring a snapshot to the NVMe, if it fits as a whole; if not, a training's ranks bring the shards they read."""

    KIND: ClassVar = "stage"
    snapshot: str
    origins: Sequence[str]
    nvme: str

    def perform(self, report: OnProgress) -> Result:
        """A `slipway.trainer.staging.stage.Staged` as JSON, with why nothing was staged in `too_large`.

        Raises ValueError and OSError as `slipway.trainer.staging.stage` does.
        """
        nvme = Path(self.nvme)
        too_large = stage.too_large(self.snapshot, self.origins, nvme)
        staged = stage.Staged(0, 0, 0, 0, 0.0) if too_large else stage.stage(self.snapshot, self.origins, nvme, report)
        return {**dataclasses.asdict(staged), "too_large": too_large}


@dataclass(frozen=True)
class RetainTask:
    """Bring the NVMe under its limits."""

    KIND: ClassVar = "retain"
    nvme: str
    gigabytes: float
    days: float
    dry_run: bool

    def perform(self, report: OnProgress) -> Result:
        """A `slipway.trainer.staging.retention.Retained` as JSON. Raises OSError."""
        return dataclasses.asdict(retention.retain(Path(self.nvme), self.gigabytes, self.days, self.dry_run))


@dataclass(frozen=True)
class DiscardTask:
    """Remove the checkpoints of trainings that are over, after a copy to a lasting tier if there is none yet.

    It also removes the compiler's caches for their restarts.
    """

    KIND: ClassVar = "discard"
    nvme: str
    durable: str
    stores: Sequence[str]
    """The trainings' folders of records."""

    def perform(self, report: OnProgress) -> Result:
        """By training, the removed, copied and staying checkpoints (`Cleared`), and the faults of unreadable trainings.

        A fault of one training does not stop the others.
        """
        cleared = dict[str, Any]()
        faults = dict[str, str]()
        for store in map(Path, self.stores):
            try:
                done = checkpoints.clear(Path(self.nvme), Path(self.durable), store)
                compiled_folder = paths.compiled(store.name)
                if (Path(self.nvme) / compiled_folder).exists() and not checkpoints.why_not_over(store):
                    removal.remove_folder(Path(self.nvme), compiled_folder)
                cleared[store.name] = dataclasses.asdict(done)
            except (OSError, ValueError, TierUnavailable) as error:
                faults[store.name] = str(error)
        return {"cleared": cleared, "faults": faults}


@dataclass(frozen=True)
class MeasureTask:
    """Measure how full the NVMe is."""

    KIND: ClassVar = "measure"
    nvme: str

    def perform(self, report: OnProgress) -> Result:
        """A `forecast.Sample` as JSON, or None for a node that has no such folder yet. Raises OSError."""
        folder = Path(self.nvme)
        return {"sample": dataclasses.asdict(of_folder(folder)) if folder.is_dir() else None}


@dataclass(frozen=True)
class PreflightTask:
    """Measure the node's hardware and judge it."""

    KIND: ClassVar = "preflight"
    folder: str
    """A folder on the disk to measure."""
    ranks: int
    """One for each GPU; 1 for a node without."""
    seconds: float
    disk_size: str
    expect: Sequence[str]
    """The expected values of lines, as `NAME=VALUE`."""
    tiers: Sequence[str] = ()
    """Further folders whose file systems are tried."""

    def perform(self, report: OnProgress) -> Result:
        """The findings as `slipway.trainer.preflight` prints them as JSON. Raises ValueError where it could not
        measure."""
        with contextlib.suppress(OSError):  # the preflight reports the fault of the folder
            Path(self.folder).mkdir(parents=True, exist_ok=True)
        return processes.json_of([*self._ranks(), *self._options()], self.seconds + GRACE_SECONDS)

    def _ranks(self) -> list[str]:
        python = [sys.executable, "-P", "-m"]
        agent = ["torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}", "--no-python", *python]
        return [*python, *(agent if self.ranks > 1 else []), "slipway.trainer.preflight"]

    def _options(self) -> list[str]:
        expected = [word for bound in self.expect for word in ("--expect", bound)]
        numbers = ["--seconds", str(self.seconds), "--disk-size", self.disk_size]
        tried = [word for tier in self.tiers for word in ("--tier", tier)]
        return ["--json", "--folder", self.folder, *tried, *numbers, *expected]


@dataclass(frozen=True)
class CollectiveTask:
    """Measure an all-reduce among the ranks of several nodes: every rank of the job does this task."""

    KIND: ClassVar = "collective"
    largest: int
    """Bytes of the largest all-reduce."""
    seconds: float

    def perform(self, report: OnProgress) -> Result:
        """The highest bus bandwidth in GB/s and the number of ranks, the same on every rank."""
        from slipway.trainer.elastic.process_groups import join  # imports torch, which no other task needs
        from slipway.trainer.preflight import collective

        with join() as world:
            hosts = world.all_gather(os.environ.get("GROUP_RANK", "0"))
            ranks_by_node = [hosts.count(host) for host in dict.fromkeys(hosts)]
            findings = list(collective.all_reduce(world, self.largest, self.seconds, ranks_by_node))
        return {
            "gigabytes_per_second": max(float(finding.value or 0) for finding in findings),
            "ranks": sum(ranks_by_node),
        }


Task = StageTask | RetainTask | DiscardTask | MeasureTask | PreflightTask | CollectiveTask
_KINDS: dict[str, type[Task]] = {
    kind.KIND: kind for kind in (StageTask, RetainTask, DiscardTask, MeasureTask, PreflightTask, CollectiveTask)
}


def of_folder(folder: Path) -> Sample:
    """Used and total bytes of the file system that holds a folder. Raises OSError."""
    usage = shutil.disk_usage(folder)
    return Sample(time.time(), usage.total - usage.free, usage.total)


def document(task: Task, outcome: Path) -> dict[str, Any]:
    """The configuration of a task that writes its outcome to a path."""
    return {"format": FORMAT, "task": task.KIND, "outcome": str(outcome), **dataclasses.asdict(task)}


def _of(configuration: dict[str, Any]) -> tuple[Task, Path]:
    """The task of a configuration, and the path of its outcome."""
    if configuration["format"] != FORMAT:
        raise ValueError(f"found a configuration of format {configuration['format']}, expected {FORMAT}")
    kind = _KINDS[configuration["task"]]
    fields: dict[str, Any] = {field.name: configuration[field.name] for field in dataclasses.fields(kind)}
    return kind(**fields), Path(configuration["outcome"])


def main(arguments: list[str]) -> int:
    """Do the task and write its outcome; returns 1, with a message, when it cannot be done."""
    try:
        task, outcome = _of(parsing.value(regular_file.read(Path(arguments[0]))))
        result = task.perform(every(LINE_SECONDS, lambda progress: console.say(f"node task: {progress}")))
        codec.create_only(outcome, {"result": result})
    except (ValueError, OSError) as error:
        console.warn(f"node task: {error}")
        return 1
    return 0


if __name__ == "__main__":
    console.explain("slipway.trainer.node_task", "does one task on a node of a cluster")
    sys.exit(main(sys.argv[1:]))
