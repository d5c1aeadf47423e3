"""Fit: a job is refused before it is submitted when the plan says that its layout cannot fit its hardware.

The hardware is the cluster's, by its profile, or this machine's. The plan is the one of `slipway plan`; its measures
are kept on the durable tier, so that later incarnations and later trainings of the same layout find them. Where no
measure can be made, nothing is refused: a step that runs out of memory is answered by the trainer itself.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipway.recipes.kubernetes import amount
from slipway.resources.launchers.protocol import Job
from slipway.trainer.base import codec
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import resolved
from slipway.trainer.config.profiles import HardwareProfile
from slipway.trainer.config.resolved import Config
from slipway.trainer.data import contents, snapshots
from slipway.trainer.plan import asking, question, room
from slipway.trainer.plan.floor import may_not_fit
from slipway.trainer.plan.question import Kernels, Question
from slipway.trainer.plan.room import Room
from slipway.trainer.plan.verdict import judge

FOLDER = "plans"
SECONDS = 50.0
"""A measure that takes longer is not waited for: whoever submits has other trainings to look after."""
log = logging.getLogger(__name__)


def check(job: Job, durable: Path, profile: HardwareProfile) -> None:
    """Raises ValueError, with the numbers, for a job that does not fit the nodes of the profile."""
    config = _config(job)
    if config is None:
        return
    try:
        profile.check_nodes(job.size, job.ranks_per_node, "placement.nodes")
    except Invalid as fault:
        raise ValueError(f"{fault.field}: {fault}") from None
    asked = _question(job, config, durable, "cuda")
    _check(job, config, asked, room.of_profile(profile, _pod_bytes(job.kubernetes)), durable)


def check_here(job: Job, durable: Path) -> None:
    """Raises ValueError, with the numbers, for a job whose nodes are all on this machine, and that does not fit it.

    A small training is not kept waiting for its plan, and neither is one on a GPU, whose memory nothing here knows.
    """
    config = _config(job)
    if config is None or has_gpus():
        return
    asked = _question(job, config, durable, "cpu")
    here = room.here(asked.ranks)
    if may_not_fit(asked, here.rank_bytes):
        _check(job, config, asked, here, durable)


def has_gpus() -> bool:
    """Whether this machine has a GPU of NVIDIA."""
    return Path("/dev/nvidiactl").exists()


def _config(job: Job) -> Config | None:
    """The job's configuration; None for a script, whose memory is its own."""
    if job.config.get("format") != resolved.FORMAT:
        return None
    return codec.build(Config, {name: each for name, each in job.config.items() if name != "format"})


def _question(job: Job, config: Config, durable: Path, kernels: Kernels) -> Question:
    data = contents.data(snapshots.read(durable, config.snapshot), config.model, config.batch.length)
    return question.of_config(config, data, job.size, job.ranks_per_node, kernels)


def _check(job: Job, config: Config, asked: Question, where: Room, durable: Path) -> None:
    try:
        measures = asking.ask(asked, durable / FOLDER, SECONDS)
    except asking.NotPlanned as error:
        log.warning("%s: started without a plan: %s", job.name, error)
        return
    verdict = judge(asked, measures, where, config.storage)
    if not verdict.fits:
        on = f"{job.size} nodes of {where.name}" if where.on_gpu else f"{asked.ranks} ranks on {where.name}"
        raise ValueError(f"it does not fit {on}: {'; '.join(verdict.problems)}; slipway plan says what to change")


def _pod_bytes(section: Mapping[str, Any]) -> int | None:
    """The memory that the recipe asks for its pods, None when it leaves that to the cluster."""
    asked = (section.get("resources") or {}).get("memory")
    return amount(asked) if asked else None
