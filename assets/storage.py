"""Storage: what checkpoints will take of each tier, how it fills, and when it is full; a check warns in time.

Each materialisation takes a sample of every tier; growth is what the samples of the last days say.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from assets import on_nodes, plots, pods
from resources.compute import Compute, trainings
from resources.tiers import Tiers
from resources.training_store import TrainingStore
from trainer import journal
from trainer.checkpoint import forecast, interval
from trainer.checkpoint.forecast import DAY, Demand, Outlook, Sample
from trainer.checkpoint.format import MANIFEST
from trainer.checkpoint.interval import BACKUP, DURABLE, NVME
from trainer.checkpoint.manifest import decode
from trainer.node_task import Measure, of_folder

KEY = dg.AssetKey(["platform", "storage"])
CHECK = "has_room"


class Horizon(dg.Config):
    days: float = Field(default=7.0, gt=0, description="A tier that is full sooner is a warning")
    backup_gigabytes: float = Field(default=0.0, ge=0, description="Quota of an object store; 0: it has no end")


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
    demands = _demands(tiers)
    told: dict[str, Any] = {}
    warnings: list[str] = []
    for name, sample in _samples(context, config, tiers, compute):
        tier = name.partition("-")[0]
        samples = remember(tiers.durable_path / "storage" / f"{name}.journal", sample)
        there, asked = _held(tiers, tier), demands.get(tier, [])
        planned = max(0, sum(demand.peak_bytes for demand in asked) - there)
        seen = forecast.outlook(samples, planned)
        told |= _metadata(name, seen, asked, samples)
        if seen.seconds is not None and seen.seconds < config.days * DAY:
            warnings.append(_warning(name, seen))
    yield dg.MaterializeResult(metadata=told)
    yield dg.AssetCheckResult(
        check_name=CHECK,
        passed=not warnings,
        severity=dg.AssetCheckSeverity.WARN,
        description="; ".join(warnings) or f"no tier is full within {config.days:g} days",
    )


def remember(path: Path, sample: Sample) -> list[Sample]:
    """Add a sample to a tier's journal; all samples, the last one first taken now."""
    with journal.Journal(path) as record:
        record.append(dataclasses.asdict(sample))
    return [Sample(**event) for event in journal.read(path).events]


def _samples(
    context: dg.AssetExecutionContext, config: Horizon, tiers: Tiers, compute: Compute
) -> Iterator[tuple[str, Sample]]:
    """What is used of each tier now: of a file system by what it says, of an object store by our copies."""
    yield DURABLE, of_folder(tiers.durable_path)
    tasks = {node.name: Measure(str(tiers.nvme_path(node.name))) for node in compute.fleet().nodes() if node.ready}
    for node, done in on_nodes.run(context, compute, tiers, tasks).items():
        if done.failure:
            context.log.warning(f"{node}: {done.failure}")
        elif done.result["sample"]:
            yield f"{NVME}-{node}", Sample(**done.result["sample"])
    if tiers.backup.startswith("s3://"):
        yield BACKUP, Sample(time.time(), _held(tiers, BACKUP), int(config.backup_gigabytes * 1e9))
    elif tiers.backup and Path(tiers.backup).is_dir():
        yield BACKUP, of_folder(Path(tiers.backup))


def _held(tiers: Tiers, tier: str) -> int:
    """Bytes of all checkpoints that a tier holds, by their records."""
    known = trainings(tiers)
    return sum(_size(store, tiers) * len(store.commits(tier)) for store in map(known.store, known.known()))


def _demands(tiers: Tiers) -> dict[str, list[Demand]]:
    """By tier, what each training that is to run will ask of it."""
    known, demands = trainings(tiers), dict[str, list[Demand]]()
    for store in map(known.store, known.known()):
        if store.unfinished and store.commits():
            for tier, demand in demands_of(store, _size(store, tiers)).items():
                demands.setdefault(tier, []).append(demand)
    return demands


def demands_of(store: TrainingStore, size: int) -> dict[str, Demand]:
    """By tier, what a training will ask of it, whose checkpoints have `size` bytes, from its ledger."""
    events, numbers, rules = store.events(), store.specification().numbers, store.storage()
    steps = [event for event in events if event["event"] == "step"][-20:]
    saves = [event["seconds"] for event in events if event["event"] == "committed"]
    pace = sum(event["seconds"] for event in steps) / max(1, len(steps))
    left = numbers["run"]["steps"] - store.commits()[-1].step
    every = numbers["checkpoint"]["every"] * pace
    seconds = interval.seconds(rules, 60 * rules.nvme.minutes)
    seconds[DURABLE] = min([s for s in (every, seconds[DURABLE]) if s], default=0.0)
    return {
        tier: forecast.demand(size, left, pace, each, getattr(rules, tier), 1, saves[-1] if saves else 0.0)
        for tier, each in seconds.items()
    }


def _size(store: TrainingStore, tiers: Tiers) -> int:
    """Bytes of a training's newest checkpoint on the durable tier, 0 before the first."""
    for commit in reversed(store.commits(DURABLE)):
        with contextlib.suppress(OSError):
            return decode((tiers.durable_path / commit.folder / MANIFEST).read_bytes()).bytes
    return 0


def _metadata(name: str, seen: Outlook, demands: list[Demand], samples: list[Sample]) -> dict[str, Any]:
    used = [(int(sample.at - samples[-1].at), sample.used / 1e9) for sample in samples]
    return {
        f"{name}_used_gigabytes": seen.used / 1e9,
        f"{name}_gigabytes": seen.capacity / 1e9,
        f"{name}_planned_gigabytes": seen.planned / 1e9,
        f"{name}_gigabytes_per_day": seen.growth * DAY / 1e9,
        f"{name}_days_until_full": "never" if seen.seconds is None else round(seen.seconds / DAY, 2),
        f"{name}_average_bytes_per_second": sum(demand.bytes_per_second for demand in demands),
        f"{name}_peak_bytes_per_second": sum(demand.burst_bytes_per_second for demand in demands),
        f"{name}_use": plots.curve({name: used}, "seconds before now", "GB"),
    }


def _warning(name: str, seen: Outlook) -> str:
    room = (seen.capacity - seen.used) / 1e9
    if not seen.seconds:
        return f"{name}: checkpoints need {seen.planned / 1e9:.1f} GB more, and {room:.1f} GB are free"
    days = f"{seen.seconds / DAY:.1f} days"
    return f"{name}: full in {days}: {room:.1f} GB are free, and it grows by {seen.growth * DAY / 1e9:.1f} GB a day"
