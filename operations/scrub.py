"""Scrub: each night a seventh of what the durable tier keeps of datasets is read again, and mended from other places.

Damaged shards and manifests come from the backup tier and the other origins of staging, tokenizers from the newest
metadata backup. What nobody has is set aside, and can be made anew from the source of its dataset: by hand, because a
build from a source that has changed meanwhile is another snapshot.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import dagster as dg
from pydantic import Field

from slipway.assets.datasets import scrub
from slipway.assets.datasets.building.scratch_dir import writing_content
from slipway.assets.datasets.scrub import DamagedContent, Scrubbed
from slipway.assets.execution import pods
from slipway.operations.metadata_backup import tier_of
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import metadata_backup
from slipway.resources.tiers import Tiers
from slipway.trainer.base import atomic, verify
from slipway.trainer.base.progress import OnProgress, every
from slipway.trainer.base.units import DAY
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers.tier import TierUnavailable
from slipway.trainer.objects.origin import Origin
from slipway.trainer.objects.origins import origin

LOG_SECONDS = 60.0
Build = Callable[[DatasetRecipe], object]
"""Builds a dataset from its source."""


class ScrubConfig(dg.Config):
    """How much is read at once."""

    nights: int = Field(default=7, ge=1, description="All files are read once in so many nights")


@dg.op(
    description="Reads a part of the datasets' files again, and mends what is damaged from other places.",
    tags=pods.tags("garbage"),
)
def scrub_datasets(context: dg.OpExecutionContext, config: ScrubConfig, tiers: Tiers) -> dg.Output[None]:
    """Raises Failure, with what to do, for a file that is lost or could not be read."""
    report = every(LOG_SECONDS, lambda progress: context.log.info(str(progress)))
    result = scrubbed(tiers, int(time.time() // DAY), config.nights, report)
    for damaged in result.damaged:
        context.log.warning(sentence(damaged))
    figures = {"files": result.files, "bytes": result.bytes, "damaged": len(result.damaged), "lost": len(result.lost)}
    if result.lost or result.unread:
        problems = [*map(sentence, result.lost), *(f"could not be read: {name}" for name in result.unread)]
        raise dg.Failure("; ".join(problems[:10]), metadata=figures)
    return dg.Output(None, metadata=figures)


def scrubbed(
    tiers: Tiers,
    part: int,
    parts: int,
    report: OnProgress,
    recipes: Mapping[str, DatasetRecipe] | None = None,
    build: Build | None = None,
) -> Scrubbed:
    """Scrub one of so many equal parts of the durable tier; with `recipes` and `build`, what no place has is made anew
    from the sources. Raises OSError where the tier cannot be listed or written, and what a build raises."""
    durable = tiers.durable_path
    result = scrub.scrub(durable, list(origins(tiers)), report, part, parts)
    damaged = [_tokenizer_restored(durable, tiers, damaged_file) for damaged_file in result.damaged]
    if recipes is not None and build is not None:
        damaged = list(_made_anew(durable, damaged, recipes, build))
    return replace(result, damaged=tuple(damaged))


def origins(tiers: Tiers) -> Iterator[Origin]:
    """Where a damaged file may be whole: the backup tier, and the places that staging asks besides the durable one."""
    if tiers.backup:
        yield origin(tiers.backup)
    yield from (origin(where) for where in tiers.origins if "{node}" not in where)


def sentence(damaged: DamagedContent) -> str:
    """What became of a damaged file, and what is to be done about it."""
    if damaged.mended:
        return f"{damaged.name}: {damaged.problem}; mended from {damaged.mended}"
    if not damaged.snapshots and not damaged.name.startswith(scrub.STAYS):
        return f"{damaged.name}: {damaged.problem}; set aside, as no snapshot that can be read consists of it"
    used = f", of snapshot {', '.join(sha256[:12] for sha256 in damaged.snapshots)}," if damaged.snapshots else ""
    return f"{damaged.name}{used} is lost: {damaged.problem}, and no other place has it; {_instructions(damaged)}"


def _instructions(lost: DamagedContent) -> str:
    """What is to be done about a file that no place has."""
    if lost.name.startswith(scrub.STAYS):
        return "put a copy of it there; a build would train another tokenizer, with which every shard changes"
    if lost.datasets:
        return f"to make it anew from the source of {', '.join(lost.datasets)}: slipway data scrub --rebuild"
    return (
        "no dataset points at that snapshot now, so that no build makes it anew: put a copy of the file there, or "
        "remove what refers to the snapshot, and then: slipway data gc"
    )


def _tokenizer_restored(durable: Path, tiers: Tiers, damaged: DamagedContent) -> DamagedContent:
    """A damaged tokenizer, mended from the newest metadata backup if that has it."""
    path = durable / damaged.name
    tier = tier_of(tiers)
    if damaged.mended or path.parent.name != scrub.STAYS:
        return damaged
    try:
        folder = metadata_backup.newest(tier)
        data = b"".join(tier.read(folder, f"{metadata_backup.DURABLE}/{damaged.name}"))
        verify.check_sha256(data, path.stem, damaged.name)
    except (ValueError, OSError, DamagedCheckpoint, TierUnavailable):
        return damaged
    with writing_content(durable):
        atomic.replace(path, data)
    return replace(damaged, mended=f"{tier}/{folder}")


def _made_anew(
    durable: Path, damaged: list[DamagedContent], recipes: Mapping[str, DatasetRecipe], build: Build
) -> Iterator[DamagedContent]:
    """What is lost of the snapshots that datasets point at, built from their sources."""
    lost = [content for content in damaged if not content.mended and not content.name.startswith(scrub.STAYS)]
    rebuilt = [name for name in sorted({name for content in lost for name in content.datasets}) if name in recipes]
    for name in rebuilt:
        build(recipes[name])
    for file in scrub.with_snapshots(durable, damaged):
        is_rebuilt = not file.mended and scrub.is_whole(durable, file.name)
        yield replace(file, mended=f"the source of {', '.join(rebuilt)}") if is_rebuilt else file


@dg.job(
    name="scrub",
    description="Reads again what the durable tier keeps of datasets, and mends what is damaged from other places.",
)
def job() -> None:
    scrub_datasets()


schedule = dg.ScheduleDefinition(
    name="scrub_schedule",
    cron_schedule="30 2 * * *",
    job=job,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each night at 02:30: a seventh of the files.",
)
