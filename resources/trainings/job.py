"""Training job: the job of one incarnation of a training, from its facts and the paths of the platform."""

import os
from dataclasses import dataclass
from pathlib import Path

from slipway.resources import receipts
from slipway.resources.launchers.protocol import Job
from slipway.resources.trainings import scripts
from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.checkpoint.disk import encryption
from slipway.trainer.config import resolved
from slipway.trainer.node.environment import REVISION


@dataclass(frozen=True)
class Paths:
    """The paths of the tiers, as a training's processes see them."""

    durable: Path
    nvme: str
    """With {node} for the node's name."""
    backup: str = ""
    """The object store's URL, a folder, or empty for none."""
    origins: tuple[str, ...] = ()
    """What is asked for shards after the durable tier, with {node} for each other node's name."""


def job_name(training: str, incarnation: int) -> str:
    """The name of an incarnation's job: the same for every process that submits it."""
    return f"{training}-i{incarnation}"


def job(
    facts: TrainingFacts, paths: Paths, revision: str = "", run: str = "", fabric: str = "", grace: float = 0.0
) -> Job:
    """The job of the newest incarnation; `run` is the Dagster run that submits it, empty for a sensor.

    Its ranks get the `grace` in seconds, so that they can say when their saves do not fit into it.

    `fabric` is the cluster's profile of network settings, for a training whose recipe names none.

    Raises ValueError when the code of a script is gone, and for a key of checkpoints that cannot be used.
    """
    nodes, specification, terms = facts.offered, facts.specification, facts.terms
    assert facts.claim is not None, "an incarnation is claimed before its job is made"
    script = specification.script
    if key_file := facts.storage.key_file:
        encryption.read_key(Path(key_file))
    size = min(terms.max_nodes, len(nodes))
    incarnation = str(facts.incarnation)
    return Job(
        name=job_name(facts.id, facts.incarnation),
        command=tuple(script["command"]) if script else ("python", "-m", "slipway.trainer"),
        folder=str(scripts.folder(script["code"], paths.durable)) if script else "",
        config=with_fabric(configuration(facts, paths), fabric),
        nodes=nodes,
        size=size,
        least=min(terms.min_nodes, size),
        prefer=_holders(nodes, specification.snapshot, paths.durable),
        ranks_per_node=terms.ranks_per_node,
        environment={
            "SLIPWAY_INCARNATION": incarnation,
            **({REVISION: revision} if revision else {}),  # else the image says its own
            **({"SLIPWAY_GRACE_SECONDS": f"{grace:g}"} if grace else {}),
        },
        labels={"training": facts.id, "incarnation": incarnation, **({"run": run} if run else {})},
        kubernetes=terms.kubernetes,
    )


def _holders(nodes: tuple[str, ...], snapshot: str, durable: Path) -> tuple[str, ...]:
    """Those of the nodes that hold the snapshot's shards."""
    holders = [receipts.holders(durable, snapshot)]
    if not holders[0]:
        holders = [receipts.holders(durable, each) for each in _staged(snapshot, durable)]
    return tuple(node for node in nodes if all(node in each for each in holders))


def _staged(snapshot: str, durable: Path) -> list[str]:
    """The snapshots that are staged ahead of a training on this one: those of a mixture, or itself."""
    from slipway.trainer.data import mixtures, snapshots  # import numpy, which is not needed where only a name is asked

    try:
        return mixtures.sources_of(snapshots.read(durable, snapshot))
    except (ValueError, OSError):
        return [snapshot]  # the trainer tells what is wrong with it


def configuration(facts: TrainingFacts, paths: Paths) -> dict[str, object]:
    """The configuration that a training's processes read: its numbers, how it runs, and where."""
    from slipway.trainer.script import FORMAT  # imports numpy, which is not needed where only a job's name is asked

    specification, terms = facts.specification, facts.terms
    placement = {
        "store": str(facts.folder),
        "durable": str(paths.durable),
        "nvme": paths.nvme,
        "backup": paths.backup,
        "origins": list(paths.origins),
        "staging": terms.staging,
        "nvme_gigabytes": terms.nvme_gigabytes,
        "init": terms.init,
    }
    branch: dict[str, object] = {}
    if parent := specification.branch:
        placement["parent"] = os.path.normpath(facts.folder.parent / parent.store)
        named = {"training": parent.training, "commit": parent.commit, "step": parent.step}
        branch = {"branch": {**named, "manifest": parent.manifest}}
    return {
        "format": FORMAT if specification.script else resolved.FORMAT,
        "training": facts.id,
        "snapshot": specification.snapshot,
        **specification.numbers,
        **terms.operation,
        **branch,
        "placement": placement,
    }


def with_fabric(config: dict[str, object], fabric: str) -> dict[str, object]:
    """A configuration with the cluster's network settings where its section `hardware` names no profile."""
    section = config.get("hardware")
    if not fabric or not isinstance(section, dict) or section.get("profile", "none") != "none":
        return config
    return {**config, "hardware": {**section, "profile": fabric}}
