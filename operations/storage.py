"""Storage: each hour, looks ahead at how each tier fills and when it will be full; a check warns in time.

Each materialisation takes a sample of every tier; growth is computed from the samples of the last days.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from slipway.assets import plots
from slipway.assets.execution import on_nodes, pods
from slipway.operations import for_each_training
from slipway.resources.compute.protocol import Compute
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import updates
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.metric_series import read_sample
from slipway.resources.trainings.store import all_trainings
from slipway.trainer.base import journal, regular_file
from slipway.trainer.base.units import DAY
from slipway.trainer.checkpoint.disk.manifest import MANIFEST, decode
from slipway.trainer.checkpoint.retention import forecast
from slipway.trainer.checkpoint.retention.forecast import Demand, Outlook, Sample
from slipway.trainer.checkpoint.saving import interval
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, NVME, TIERS
from slipway.trainer.node_task import MeasureTask, of_folder

KEY = dg.AssetKey(["platform", "storage"])
CHECK = "has_room"


class Horizon(dg.Config):
    """How far the check looks ahead."""

    days: float = Field(default=7.0, gt=0, description="A tier that is full sooner is a warning")
    backup_gigabytes: float = Field(default=0.0, ge=0, description="Quota of an object store; 0: it has no end")


@dataclasses.dataclass
class Use:
    """What trainings hold of the tiers, and will ask of them."""

    bytes_held: dict[str, int] = dataclasses.field(default_factory=dict)
    """By tier, bytes of all checkpoints, by their records."""
    demands: dict[str, list[Demand]] = dataclasses.field(default_factory=dict)
    """By tier, what each training that is to run will ask of it."""

    def add(self, facts: TrainingFacts, size: int) -> None:
        """Add a training whose checkpoints have `size` bytes; how many a script will save, only the script knows."""
        for tier in TIERS:
            self.bytes_held[tier] = self.bytes_held.get(tier, 0) + size * len(facts.commits_on(tier))
        if facts.unfinished and facts.commits and facts.specification.script is None:
            for tier, demand in demands_of(facts, size).items():
                self.demands.setdefault(tier, []).append(demand)


@dg.asset(
    key=KEY,
    group_name="platform",
    kinds={"python"},
    op_tags=pods.tags("storage"),
    owners=["team:platform"],
    check_specs=[
        dg.AssetCheckSpec(CHECK, asset=KEY, description="No tier is full within the horizon, by plan or by growth.")
    ],
    description="Each tier's use, growth and peak, planned from the sizes and intervals of checkpoints.",
)
def storage(
    context: dg.AssetExecutionContext, config: Horizon, tiers: Tiers, compute: Compute
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    use = Use()
    for_each_training.apply(context, all_trainings(tiers).stores(), lambda facts: use.add(facts, _size(facts, tiers)))
    metadata: dict[str, Any] = {}
    warnings: list[str] = []
    for name, sample in _samples(context, config, tiers, compute, use):
        tier = name.partition("-")[0]
        samples = remember(tiers.durable_path / "storage" / f"{name}.journal", sample)
        held_bytes = use.bytes_held.get(tier, 0)
        demands = use.demands.get(tier, [])
        planned = max(0, sum(demand.peak_bytes for demand in demands) - held_bytes)
        outlook = forecast.outlook(samples, planned)
        metadata |= _metadata(name, outlook, demands, samples)
        if outlook.seconds_until_full is not None and outlook.seconds_until_full < config.days * DAY:
            warnings.append(_warning(name, outlook))
    yield dg.MaterializeResult(metadata=metadata)
    yield dg.AssetCheckResult(
        check_name=CHECK,
        passed=not warnings,
        severity=dg.AssetCheckSeverity.WARN,
        description="; ".join(warnings) or f"no tier is full within {config.days:g} days",
    )


def remember(path: Path, sample: Sample) -> list[Sample]:
    """Add a sample to a tier's journal; returns all samples, the oldest first."""
    with journal.Journal(path) as record:
        record.append(dataclasses.asdict(sample))
    return [Sample(**event) for event in journal.read(path).events]


def _samples(
    context: dg.AssetExecutionContext, config: Horizon, tiers: Tiers, compute: Compute, use: Use
) -> Iterator[tuple[str, Sample]]:
    """What is used of each tier now: of a file system by what it says, of an object store by our copies."""
    yield DURABLE, of_folder(tiers.durable_path)
    tasks = {node.name: MeasureTask(str(tiers.nvme_path(node.name))) for node in compute.fleet().nodes() if node.ready}
    for node, done in on_nodes.run(context, compute, tiers, tasks).items():
        if done.failure:
            context.log.warning(f"{node}: {done.failure}")
        elif done.result["sample"]:
            yield f"{NVME}-{node}", Sample(**done.result["sample"])
    if tiers.backup.startswith("s3://"):
        yield BACKUP, Sample(time.time(), use.bytes_held.get(BACKUP, 0), int(config.backup_gigabytes * 1e9))
    elif tiers.backup and Path(tiers.backup).is_dir():
        yield BACKUP, of_folder(Path(tiers.backup))


def demands_of(facts: TrainingFacts, size: int) -> dict[str, Demand]:
    """What a training whose checkpoints have `size` bytes will ask of each tier, from its ledger."""
    read = read_sample(facts.folder)
    numbers = facts.specification.identity_config
    rules = facts.storage
    steps = read.steps[-20:]
    saves = [event["seconds"] for event in read.events if event["event"] == "committed"]
    pace = sum(event["seconds"] for event in steps) / max(1, len(steps))
    steps_in_all = updates.steps_now(facts)
    assert steps_in_all is not None
    steps_left = steps_in_all - facts.commits[-1].step
    every = numbers["checkpoint"]["every"] * pace
    seconds = interval.ceilings(rules)
    seconds[DURABLE] = min([s for s in (every, seconds[DURABLE]) if s], default=0.0)
    return {
        tier: forecast.demand(
            size, steps_left, pace, interval_seconds, getattr(rules, tier), 1, saves[-1] if saves else 0.0
        )
        for tier, interval_seconds in seconds.items()
    }


def _size(facts: TrainingFacts, tiers: Tiers) -> int:
    """Bytes of a training's newest checkpoint on the durable tier, 0 before the first."""
    for commit in reversed(facts.commits_on(DURABLE)):
        with contextlib.suppress(OSError):
            return decode(regular_file.read(tiers.durable_path / commit.folder / MANIFEST)).bytes
    return 0


def _metadata(name: str, outlook: Outlook, demands: list[Demand], samples: list[Sample]) -> dict[str, Any]:
    used = [(int(sample.at - samples[-1].at), sample.used / 1e9) for sample in samples]
    seconds_left = outlook.seconds_until_full
    return {
        f"{name}_used_gigabytes": outlook.used / 1e9,
        f"{name}_gigabytes": outlook.capacity / 1e9,
        f"{name}_planned_gigabytes": outlook.planned / 1e9,
        f"{name}_gigabytes_per_day": outlook.growth * DAY / 1e9,
        f"{name}_days_until_full": "never" if seconds_left is None else round(seconds_left / DAY, 2),
        f"{name}_average_bytes_per_second": sum(demand.bytes_per_second for demand in demands),
        f"{name}_peak_bytes_per_second": sum(demand.burst_bytes_per_second for demand in demands),
        f"{name}_use": plots.curve({name: used}, "seconds before now", "GB"),
    }


def _warning(name: str, outlook: Outlook) -> str:
    room = (outlook.capacity - outlook.used) / 1e9
    if not outlook.seconds_until_full:
        return f"{name}: checkpoints need {outlook.planned / 1e9:.1f} GB more, and {room:.1f} GB are free"
    days = f"{outlook.seconds_until_full / DAY:.1f} days"
    return f"{name}: full in {days}: {room:.1f} GB are free, and it grows by {outlook.growth * DAY / 1e9:.1f} GB a day"


job = dg.define_asset_job(
    "storage_outlook", dg.AssetSelection.assets(KEY), description="Looks ahead at how each tier fills."
)
schedule = dg.ScheduleDefinition(
    name="storage_outlook_schedule",
    cron_schedule="5 * * * *",
    job=job,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each hour.",
)
