"""Names in the asset graph: asset keys, partition keys and tags, which assets and sensors share.

An asset key begins with the asset prefix of its recipe or registered model (`slipway.recipes.asset_prefix`). Partition
keys: a node's name for staged shards, a training's id, ``<training>.<step>`` for its checkpoints and evaluations,
``<training>.<incarnation>.<generation>[.<step>[.<number>]]`` for its incidents, ``<sweep>.<n>`` for trials.
"""

import re

import dagster as dg

from slipway.recipes import asset_prefix

NODES = dg.DynamicPartitionsDefinition(name="nodes")
PREFLIGHT = dg.AssetKey(["platform", "preflight"])
DIAGNOSES_TAG = "slipway/diagnoses"
"""Tag of a run that diagnoses a node; its value is the node."""
BISECTS_TAG = "slipway/bisects"
"""Tag of a run that bisects nodes; its value is the incident that caused it."""
TRAINING_TAG = "slipway/training"
NAME_TAG = "slipway/name"
"""Tag of a training's run: the training's display name (`slipway.resources.trainings.naming`)."""
SWEEP_TAG = "slipway/sweep"
SHOWS_TAG = "slipway/shows"
"""Tag of a run that only shows a training and does not request it."""
LIFE_TAG = "slipway/life"
"""Tag of a training's run: the desired generation that it last saw. Cancelling the run ends only that one."""


def lane(name: str) -> str:
    """The asset prefix of a recipe or a registered model: the first part of its assets' keys."""
    return asset_prefix.lane(name)


def key(recipe: str, noun: str) -> dg.AssetKey:
    return dg.AssetKey([lane(recipe), noun])


def training_partitions(recipe: str) -> dg.DynamicPartitionsDefinition:
    return dg.DynamicPartitionsDefinition(name=f"{lane(recipe)}_trainings")


def checkpoint_partitions(recipe: str) -> dg.DynamicPartitionsDefinition:
    return dg.DynamicPartitionsDefinition(name=f"{lane(recipe)}_checkpoints")


def incident_partitions(recipe: str) -> dg.DynamicPartitionsDefinition:
    """``<training>.<incarnation>.<generation>[.<step>[.<number>]]``: the training, and the id of the incident."""
    return dg.DynamicPartitionsDefinition(name=f"{lane(recipe)}_incidents")


def trial_partitions(recipe: str) -> dg.DynamicPartitionsDefinition:
    return dg.DynamicPartitionsDefinition(name=f"{lane(recipe)}_trials")


def add_partition(instance: dg.DagsterInstance, partitions: dg.DynamicPartitionsDefinition, key: str) -> None:
    """Add a dynamic partition unless it exists."""
    assert partitions.name is not None
    instance.add_dynamic_partitions(partitions.name, [key])


def checkpoint_partition(training: str, step: int) -> str:
    return f"{training}.{step:09d}"


def parse_checkpoint_partition(partition: str) -> tuple[str, int]:
    """(training, step) of a checkpoint's partition key. Raises ValueError for any other."""
    training, _, step = partition.rpartition(".")
    if not training or not (step.isascii() and step.isdecimal()):
        raise ValueError(f"partition {partition!r}: expected <training>.<step>, one of the checkpoints that are listed")
    return training, int(step)


def parse_incident_partition(partition: str) -> tuple[str, str]:
    """(training, id of the incident) of an incident's partition key. Raises ValueError for any other."""
    match = _INCIDENT.fullmatch(partition)
    if match is None:
        raise ValueError(f"partition {partition!r}: expected <training>.<incarnation>.<generation>[.<step>[.<number>]]")
    return match[1], match[2]


_INCIDENT = re.compile(r"(.+?)\.(\d{6}\.\d{4}(?:\.\d{9}(?:\.\d+)?)?)")
