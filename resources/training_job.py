"""Training job: the job of one incarnation of a training, from what its folder says and where things lie."""

from dataclasses import dataclass
from pathlib import Path

from resources import scripts, staged
from resources.launcher.protocol import Job
from resources.training_store import Specification, TrainingStore
from trainer import config
from trainer.checkpoint import sealing
from trainer.fence import Claim
from trainer.script import FORMAT


@dataclass(frozen=True)
class Paths:
    """Where a training's things lie, as its processes see it."""

    durable: Path
    nvme: str
    """With {node} for the node's name."""
    backup: str = ""
    """The object store's URL, a folder, or empty for none."""


def job_name(training: str, incarnation: int) -> str:
    """The job of an incarnation: the same name for whoever submits it."""
    return f"{training}-i{incarnation}"


def job(store: TrainingStore, claim: Claim, paths: Paths, revision: str = "", run: str = "") -> Job:
    """The job that the claim is for; `run` is the Dagster run that submits it, empty for a sensor.

    Raises ValueError when the code of a script is gone, and for a key of checkpoints that cannot be used.
    """
    incarnation, specification, terms = claim.token.incarnation, store.specification(), store.terms()
    script = specification.script
    if key_file := store.storage().key_file:
        sealing.read_key(Path(key_file))
    size = min(terms.max_nodes, len(claim.nodes))
    return Job(
        name=job_name(store.id, incarnation),
        command=tuple(script["command"]) if script else ("python", "-m", "trainer"),
        folder=str(scripts.folder(script["code"], paths.durable)) if script else "",
        config=_configuration(store, specification, paths),
        nodes=claim.nodes,
        size=size,
        least=min(terms.min_nodes, size),
        prefer=_holders(claim.nodes, specification.snapshot, paths.durable),
        ranks_per_node=terms.ranks_per_node,
        environment={"SLIPWAY_INCARNATION": str(incarnation), "SLIPWAY_REVISION": revision},
        labels={"training": store.id, "incarnation": str(incarnation), **({"run": run} if run else {})},
        kubernetes=terms.kubernetes,
    )


def _holders(nodes: tuple[str, ...], snapshot: str, durable: Path) -> tuple[str, ...]:
    """Those of the nodes that hold the snapshot's shards."""
    holders = staged.holders(durable, snapshot)
    return tuple(node for node in nodes if node in holders)


def _configuration(store: TrainingStore, specification: Specification, paths: Paths) -> dict[str, object]:
    placement = {
        "store": str(store.folder),
        "durable": str(paths.durable),
        "nvme": paths.nvme,
        "backup": paths.backup,
        "staging": store.terms().staging,
        "init": store.terms().init,
    }
    return {
        "format": FORMAT if specification.script else config.FORMAT,
        "training": store.id,
        "snapshot": specification.snapshot,
        **specification.numbers,
        **store.terms().operation,
        "placement": placement,
    }
