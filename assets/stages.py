"""Stages: the build steps that made a snapshot, from the records of its dataset's builds.

Each build step records its inputs: the version of its code, the rules, the split, the evaluation sets. This module
finds the steps that led to one snapshot, for a model's record.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipway.assets.holdout_filter import LEFT_OUT_KEY
from slipway.trainer.base import listing, parsing, regular_file
from slipway.trainer.data import mixtures, snapshots
from slipway.trainer.data.mixtures import MixtureSnapshot
from slipway.trainer.data.snapshots import Snapshot

STEPS = "steps"
SOURCE = "source"
"""The name of an input that the snapshot's manifest also has."""


def of_snapshot(durable: Path, snapshot: Snapshot) -> dict[str, Any]:
    """The inputs of each step by name, or of a mixture by dataset. Empty if no record is left."""
    if not isinstance(snapshot, MixtureSnapshot):
        return _of_one(durable, snapshot)
    stages_by_dataset = {}
    for sha256 in mixtures.sources_of(snapshot):
        part = snapshots.read(durable, sha256)
        stages_by_dataset[part.dataset] = _of_one(durable, part)
    return {name: stages for name, stages in stages_by_dataset.items() if stages}


def _of_one(durable: Path, snapshot: Snapshot) -> dict[str, Any]:
    original = str(snapshot.source.get(LEFT_OUT_KEY, {}).get("snapshot", snapshot.sha256))
    texts = {original}
    inputs = dict[str, Any]()
    records = dict(_records(durable / "datasets" / snapshot.dataset / STEPS))
    while leading := {name: record for name, record in records.items() if _texts(record["result"]) & texts}:
        for name, step_record in leading.items():
            inputs[name.rpartition("-")[0]] = {
                key: value for key, value in step_record["inputs"].items() if key != SOURCE
            }
            texts |= _texts(step_record["inputs"])
            del records[name]
    return inputs


def _records(folder: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """The recorded steps, by name, without those that cannot be read."""
    records = []
    for name in listing.names_if_there(folder, ".json"):
        try:
            read = parsing.value(regular_file.read(folder / f"{name}.json"))
        except (OSError, ValueError):
            continue
        if "result" in read and isinstance(read.get("inputs"), dict) and isinstance(read["result"], dict):
            records.append((name, read))
    return records


def _texts(values: Mapping[str, Any]) -> set[str]:
    """The texts, such as hashes, among some values."""
    return {value for value in values.values() if isinstance(value, str) and len(value) == 64}
