"""Stages: how a snapshot was made, step by step, as far as the records of its dataset's builds say.

Each step of a build keeps what went into it: the version of its code, the rules, the split, the evaluation sets that
its documents were compared with. Here are those that led to one snapshot, so that a model's record can name them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipway.assets.holdout_filter import UNSEEN
from slipway.trainer.base import listing, parsing, regular_file
from slipway.trainer.data import mixtures, snapshots
from slipway.trainer.data.mixtures import MixtureSnapshot
from slipway.trainer.data.snapshots import Snapshot

STEPS = "steps"
SOURCE = "source"
"""Of the inputs, what the snapshot's manifest has too."""


def of_snapshot(durable: Path, snapshot: Snapshot) -> dict[str, Any]:
    """The inputs of each step, by its name; of a mixture by its datasets. Empty where no record is left."""
    if not isinstance(snapshot, MixtureSnapshot):
        return _of_one(durable, snapshot)
    found = {}
    for each in mixtures.sources_of(snapshot):
        part = snapshots.read(durable, each)
        found[part.dataset] = _of_one(durable, part)
    return {name: stages for name, stages in found.items() if stages}


def _of_one(durable: Path, snapshot: Snapshot) -> dict[str, Any]:
    made = str(snapshot.source.get(UNSEEN, {}).get("snapshot", snapshot.sha256))
    wanted, found = {made}, dict[str, Any]()
    records = dict(_records(durable / "datasets" / snapshot.dataset / STEPS))
    while leading := {name: each for name, each in records.items() if _texts(each["result"]) & wanted}:
        for name, each in leading.items():
            found[name.rpartition("-")[0]] = {key: value for key, value in each["inputs"].items() if key != SOURCE}
            wanted |= _texts(each["inputs"])
            del records[name]
    return found


def _records(folder: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """The steps whose inputs and results are on record, by name; what cannot be read tells nothing."""
    found = []
    for name in listing.names_if_there(folder, ".json"):
        try:
            read = parsing.value(regular_file.read(folder / f"{name}.json"))
        except (OSError, ValueError):
            continue
        if "result" in read and isinstance(read.get("inputs"), dict) and isinstance(read["result"], dict):
            found.append((name, read))
    return found


def _texts(values: Mapping[str, Any]) -> set[str]:
    """The hashes among some values."""
    return {value for value in values.values() if isinstance(value, str) and len(value) == 64}
