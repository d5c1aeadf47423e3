"""Artefacts in MLflow: the files of a run: the code that ran, and in the end its page with all curves.

They are on the durable tier before they are delivered. Metrics are delivered first, so that an artefact store that is
away does not delay them. Delivering an artefact twice leaves one copy.
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
"""The folder in MLflow for files about the code."""
ALWAYS = (files.SPECIFICATION,)
"""The files of a training's folder that are always delivered."""


def of_starts(events: Iterable[JournalEvent]) -> list[str]:
    """The files that describe the code of each start, relative to the durable tier: the list of packages, and the
    difference of a changed checkout."""
    paths: dict[Path, None] = {}
    for event in events:
        if event["event"] == "started":
            revision = event.get("revision", "")
            packages = event.get("environment", {}).get("packages", "")
            if code.is_changed(revision):
                paths[code.difference_path(Path(), revision)] = None
            if packages:
                paths[runtime_info.packages_path(Path(), packages)] = None
    return [str(path) for path in paths]


def deliver(client: "MlflowClient", store: TrainingStore, durable: Path, shipped: ShippedLedger,
            names: Iterable[str]) -> None:  # fmt: skip
    """Deliver the pending files about the code, and those of the training's folder in `names` that the run lacks.

    Files that were never stored, such as a difference that is too large, are left out. So are lines that look like
    secrets in a difference of an earlier release.
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
    """Deliver a file about the code; a difference without lines that look like secrets."""
    if not path.exists():
        return
    if path.suffix != code.SUFFIX:
        client.log_artifact(run, str(path), CODE)
        return
    with tempfile.TemporaryDirectory(prefix="slipway-code-") as folder:
        clean = Path(folder, path.name)
        clean.write_bytes(code_difference.without_secrets(regular_file.read(path)).data)
        client.log_artifact(run, str(clean), CODE)
