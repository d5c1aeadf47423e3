"""A job as the JSON document that its object carries, and whether two of them are the same job. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from resources.launcher.protocol import Job
from trainer import atomic

INCIDENTAL = ("environment", "labels", "prefer")
"""Fields that make no other job: who adopts one may be of a later revision than who submitted it, and know more."""


def of(job: Job) -> dict[str, Any]:
    """The job as it reads back. Raises ValueError when its config is no JSON."""
    mappings = ("config", "environment", "labels", "kubernetes")
    plain = {**vars(job), **{name: dict(getattr(job, name)) for name in mappings}}
    try:
        document: dict[str, Any] = json.loads(atomic.canonical_json(plain))
    except TypeError as error:
        raise ValueError(f"job {job.name}: its config is no JSON document: {error}") from error
    return document


def job(document: Mapping[str, Any]) -> Job:
    """The job of a document; one written by an earlier revision has fewer fields."""
    tuples = {name: tuple(document.get(name, ())) for name in ("command", "nodes", "prefer")}
    return Job(**{**document, **tuples})


def must_be_the_same(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    """Raises ValueError when the document that is there is of another job than the wanted one."""
    found = of(job(there))
    differing = [name for name in wanted if name not in INCIDENTAL and wanted[name] != found[name]]
    if differing:
        raise ValueError(f"job {wanted['name']}: already submitted with another {', '.join(differing)}")
