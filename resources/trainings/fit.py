"""Fit: a job is refused before it is submitted when the plan says that its layout cannot fit the cluster's hardware.

The plan is the one of `slipway plan`; its measures are kept on the durable tier, so that later incarnations and later
trainings of the same layout find them. Where no measure can be made, nothing is refused: a step that runs out of memory
is answered by the trainer itself.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recipes.kubernetes import amount
from resources.launchers.protocol import Job
from trainer.base import codec
from trainer.base.invalid import Invalid
from trainer.config import resolved
from trainer.config.profiles import HardwareProfile
from trainer.config.resolved import Config
from trainer.data import contents, snapshots
from trainer.plan import asking, question, room
from trainer.plan.verdict import judge

FOLDER = "plans"
SECONDS = 50.0
"""A measure that takes longer is not waited for: whoever submits has other trainings to look after."""
log = logging.getLogger(__name__)


def check(job: Job, durable: Path, profile: HardwareProfile) -> None:
    """Raises ValueError, with the numbers, for a job that does not fit the nodes of the profile."""
    if job.config.get("format") != resolved.FORMAT:
        return  # a script's memory is its own
    config = codec.build(Config, {name: each for name, each in job.config.items() if name != "format"})
    try:
        profile.check_nodes(job.size, job.ranks_per_node, "placement.nodes")
    except Invalid as fault:
        raise ValueError(f"{fault.field}: {fault}") from None
    data = contents.data(snapshots.read(durable, config.snapshot), config.model, config.batch.length)
    asked = question.of_config(config, data, job.size, job.ranks_per_node)
    try:
        measures = asking.ask(asked, durable / FOLDER, SECONDS)
    except asking.NotPlanned as error:
        log.warning("%s: started without a plan: %s", job.name, error)
        return
    verdict = judge(asked, measures, room.of_profile(profile, _pod_bytes(job.kubernetes)), config.storage)
    if not verdict.fits:
        where = f"it does not fit {job.size} nodes of {profile.name}"
        raise ValueError(f"{where}: {'; '.join(verdict.problems)}; slipway plan says what to change")


def _pod_bytes(section: Mapping[str, Any]) -> int | None:
    """The memory that the recipe asks for its pods, None when it leaves that to the cluster."""
    asked = (section.get("resources") or {}).get("memory")
    return amount(asked) if asked else None
