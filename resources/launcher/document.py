"""A job as the JSON document that its object carries, and whether two of them are the same job. Pure."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from resources.launcher.protocol import Job
from trainer import atomic

INCIDENTAL = ("environment", "labels", "prefer")
"""Fields that make no other job: who adopts one may be of a later revision than who submitted it, and know more."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


def must_be_a_name(name: str) -> None:
    """Raises ValueError for what cannot be a job's name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"job name {name!r}: expected letters, digits, '-' and '.', a letter or digit first")


def must_be_possible(job: Job, nodes: Collection[str]) -> None:
    """Raises ValueError unless the job can run on a fleet of these nodes."""
    unknown = sorted(set(job.nodes) - set(nodes))
    if unknown:
        raise ValueError(f"job {job.name}: no such node: {', '.join(unknown)}; there are {', '.join(sorted(nodes))}")
    if not job.nodes or len(set(job.nodes)) != len(job.nodes):
        raise ValueError(f"job {job.name}: nodes {job.nodes}: expected at least one, each once")
    if job.ranks_per_node < 1:
        raise ValueError(f"job {job.name}: {job.ranks_per_node} ranks per node: expected at least 1")


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
