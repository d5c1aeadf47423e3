"""Artefacts in MLflow: the files that a run has beside its figures: what ran, and in the end its page with all curves.

They lie on the durable tier before they are delivered, and come after the figures: a store of artefacts that is away
keeps no figure back. Delivering one twice leaves one.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from slipway.resources import code, code_difference
from slipway.resources.mlflow.ledger_delivery import ShippedLedger
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import regular_file
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.node import runtime_info
from slipway.trainer.record import files

if TYPE_CHECKING:
    from mlflow import MlflowClient

CODE = "code"
"""MLflow's folder for what describes the code."""
ALWAYS = (files.SPECIFICATION,)
"""Of every training's folder."""


def of_starts(events: Iterable[JournalEvent]) -> list[str]:
    """The files that say what ran at each start, relative to the durable tier: the list of packages, and the difference
    of a changed checkout."""
    paths: dict[Path, None] = {}
    for event in events:
        if event["event"] == "started":
            revision = event.get("revision", "")
            packages = event.get("environment", {}).get("packages", "")
            paths |= {code.difference_path(Path(), revision): None} if code.is_changed(revision) else {}
            paths |= {runtime_info.packages_path(Path(), packages): None} if packages else {}
    return [str(path) for path in paths]


def deliver(client: "MlflowClient", store: TrainingStore, durable: Path, shipped: ShippedLedger,
            names: Iterable[str]) -> None:  # fmt: skip
    """Deliver what is owed, and the files of these names in the training's folder that the run does not have yet.

    What was never kept (a difference that is too large, say) is left out, and so is what looks like a secret in what
    an earlier release kept.
    """
    for name_of_code in list(shipped.code):
        _deliver_code(client, shipped.run, durable / name_of_code)
        shipped.code.remove(name_of_code)
        shipped.save(store)
    for name in names:
        if name not in shipped.files and (store.folder / name).exists():
            client.log_artifact(shipped.run, str(store.folder / name))
            shipped.files.append(name)
            shipped.save(store)


def _deliver_code(client: "MlflowClient", run: str, path: Path) -> None:
    """Deliver a file that describes the code; a difference without what looks like a secret."""
    if not path.exists():
        return
    if path.suffix != code.SUFFIX:
        client.log_artifact(run, str(path), CODE)
        return
    with tempfile.TemporaryDirectory(prefix="slipway-code-") as folder:
        clean = Path(folder, path.name)
        clean.write_bytes(code_difference.without_secrets(regular_file.read(path)).data)
        client.log_artifact(run, str(clean), CODE)
