"""Submission: submit the job of a claimed incarnation, and decide what a failed submission means.

An error of the job itself ends the incarnation, since a new start would fail in the same way. If the platform lacks
something, the start waits. It also waits if a training with a checkpoint no longer fits the hardware, since it fitted
before.
Before the submission, a job is checked against the plan of `slipway plan` (`check_layout`), whose measurements are
stored on the durable tier for later trainings with the same layout, and against the space for its snapshot on its nodes
(`check_staging`). If no measurement is possible, nothing is rejected: the trainer handles a step that runs out of
memory, and measures the space when it starts.
"""

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.recipes.kubernetes import amount
from slipway.resources import code
from slipway.resources.errors import PlatformFault
from slipway.resources.launchers.protocol import DoesNotFit, Job, Launcher, MissingNodes
from slipway.resources.trainings import job as training_job
from slipway.resources.trainings import refusals
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import Paths
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import codec
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import resolved
from slipway.trainer.config.operation import Placement
from slipway.trainer.config.profiles import HardwareProfile
from slipway.trainer.config.resolved import Config
from slipway.trainer.data import contents, snapshots
from slipway.trainer.loading.needs import SnapshotReading, need_of_script
from slipway.trainer.plan import plan_client, question, room
from slipway.trainer.plan.question import Kernels, Question
from slipway.trainer.plan.room import Room
from slipway.trainer.plan.verdict import judge, may_not_fit
from slipway.trainer.record import causes
from slipway.trainer.staging import holding

PLANS_FOLDER = "plans"
MEASURE_SECONDS = 50.0
"""The longest wait for a measurement, since the submitting process has other trainings to handle."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Submission:
    """Submits the jobs of one platform's trainings."""

    paths: Paths
    clock: Callable[[], float]
    revision: str = ""
    hardware: HardwareProfile | None = None
    sees_nodes: bool = False
    """Whether this process can read the nodes' NVMe folders."""

    def submit(
        self, launcher: Launcher, store: TrainingStore, facts: TrainingFacts, by: str, run: str, grace: float
    ) -> bool:
        """Submit or adopt the job of the newest incarnation. Returns False if the start waits or the incarnation ended.

        Raises Unavailable if the launcher does not answer, and OSError.
        """
        try:
            launcher.submit(self._job(facts, run, grace))
        except (PlatformFault, ValueError) as error:
            self._note(store, facts, error, by)
            return False
        return True

    def _note(self, store: TrainingStore, facts: TrainingFacts, error: Exception, by: str) -> None:
        """Record that the start waits, or that the incarnation has ended."""
        is_waiting = isinstance(error, PlatformFault) or (isinstance(error, DoesNotFit) and facts.has_checkpoint)
        if is_waiting:
            refusals.note(store, facts, str(error), by, self.clock)
            return
        gone = isinstance(error, MissingNodes)
        kind = causes.DISRUPTED if gone else causes.CONFIGURATION
        nodes = facts.nodes if gone else ()
        store.record_exit(facts.incarnation, "failed", str(error), by, nodes, disrupted=gone, kind=kind)

    def _job(self, facts: TrainingFacts, run: str, grace: float) -> Job:
        """The job of the newest incarnation. Raises DoesNotFit if the hardware or the space is not sufficient."""
        try:
            fabric = self.hardware.fabric if self.hardware else ""
            code.keep_difference(self.paths.durable, self.revision)
            job = training_job.job(facts, self.paths, self.revision, run, fabric, grace)
            check_staging(job, self.paths.durable, self.hardware, self.sees_nodes)
            if self.hardware is not None:
                check_layout(job, self.paths.durable, self.hardware)
            elif self.sees_nodes:
                check_layout_here(job, self.paths.durable)
        except ValueError as error:
            raise DoesNotFit(str(error)) from error
        return job


def check_layout(job: Job, durable: Path, profile: HardwareProfile) -> None:
    """Raises ValueError with the numbers if a job does not fit the nodes of the profile."""
    config = _model_config(job)
    if config is None:
        return
    try:
        profile.check_nodes(job.size, job.ranks_per_node, "placement.nodes")
    except Invalid as fault:
        raise ValueError(f"{fault.field}: {fault}") from None
    plan_question = _question(job, config, durable, "cuda")
    _check_plan(job, config, plan_question, room.of_profile(profile, _pod_bytes(job.kubernetes)), durable)


def check_layout_here(job: Job, durable: Path) -> None:
    """Raises ValueError with the numbers if a job whose nodes are all on this machine does not fit it.

    A small training does not wait for a plan, and neither does one on a GPU, whose memory is unknown here.
    """
    config = _model_config(job)
    if config is None or has_gpus():
        return
    plan_question = _question(job, config, durable, "cpu")
    machine = room.local_room(plan_question.ranks)
    if may_not_fit(plan_question, machine.rank_bytes):
        _check_plan(job, config, plan_question, machine, durable)


def has_gpus() -> bool:
    """Whether this machine has an NVIDIA GPU."""
    return Path("/dev/nvidiactl").exists()


def check_staging(job: Job, durable: Path, hardware: HardwareProfile | None, sees_nodes: bool) -> None:
    """Raises ValueError with the sizes if the nodes of a job cannot hold its snapshot in any way that it allows."""
    placement = codec.build(Placement, job.config["placement"])
    rooms = dict[str, int]()
    for node in job.nodes[: job.size]:
        room = _room(placement, node, hardware, sees_nodes)
        if room:
            rooms[node] = room
    if len(rooms) < job.size:
        return
    try:
        snapshot = snapshots.read(durable, str(job.config["snapshot"]))
    except (OSError, ValueError):
        return
    if job.config.get("format") != resolved.FORMAT:
        need = need_of_script(snapshot, job.ranks_per_node)
        for node, room in rooms.items():
            holding.choose(placement.staging, need, {node: room})
        return
    config = codec.build(Config, {name: section for name, section in job.config.items() if name != "format"})
    reading = SnapshotReading(snapshot, config.batch, config.run, config.validation, mix=config.mix)
    reading.hold(placement.staging, rooms)


def _model_config(job: Job) -> Config | None:
    """The job's configuration; None for a script, whose memory is unknown."""
    if job.config.get("format") != resolved.FORMAT:
        return None
    return codec.build(Config, {name: section for name, section in job.config.items() if name != "format"})


def _question(job: Job, config: Config, durable: Path, kernels: Kernels) -> Question:
    data = contents.data(snapshots.read(durable, config.snapshot), config.model, config.batch.length)
    return question.of_config(config, data, job.size, job.ranks_per_node, kernels)


def _check_plan(job: Job, config: Config, plan_question: Question, where: Room, durable: Path) -> None:
    try:
        measures = plan_client.ask(plan_question, durable / PLANS_FOLDER, MEASURE_SECONDS)
    except plan_client.NotPlanned as error:
        log.warning("%s: started without a plan: %s", job.name, error)
        return
    verdict = judge(plan_question, measures, where, config.storage)
    if not verdict.fits:
        on = f"{job.size} nodes of {where.name}" if where.on_gpu else f"{plan_question.ranks} ranks on {where.name}"
        raise ValueError(f"the training does not fit {on}: {'; '.join(verdict.problems)}; see slipway plan")


def _pod_bytes(section: Mapping[str, Any]) -> int | None:
    """The memory that the recipe sets for its pods; None if it leaves that to the cluster."""
    memory = (section.get("resources") or {}).get("memory")
    return amount(memory) if memory else None


def _room(placement: Placement, node: str, hardware: HardwareProfile | None, sees_nodes: bool) -> int | None:
    """The maximum number of bytes for shards on a node's NVMe; None if unknown."""
    limits = list[float]()
    if placement.nvme_gigabytes is not None:
        limits.append(placement.nvme_gigabytes * 1e9)
    if hardware is not None:
        limits.append(holding.SHARE * hardware.nvme_bytes)
    disk = _disk(Path(placement.nvme.format(node=node))) if sees_nodes else None
    if disk:
        limits.append(holding.SHARE * disk)
    return int(min(limits)) if limits else None


def _disk(folder: Path) -> int | None:
    """The size in bytes of the disk of a folder, which need not exist yet; None if it cannot be read."""
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        return shutil.disk_usage(there).total
    except (OSError, StopIteration):
        return None
