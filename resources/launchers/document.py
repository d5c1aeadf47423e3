"""Job documents: a job as the JSON document in its job object, and the comparison of two documents. Pure."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from slipway.resources.launchers.protocol import Job, MissingNodes
from slipway.trainer.base import atomic, parsing

INCIDENTAL = ("environment", "labels", "prefer", "warm_start")
"""Fields in which two documents of the same job may differ, since a process of a later revision may adopt the job."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


def must_be_a_name(name: str) -> None:
    """Raises ValueError if a text cannot be a job's name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"job name {name!r}: expected letters, digits, '-' and '.', a letter or digit first")


def must_be_possible(job: Job, nodes: Collection[str]) -> None:
    """Raises MissingNodes if the job needs nodes that are not in `nodes`, and ValueError if it is otherwise invalid."""
    unknown = sorted(set(job.nodes) - set(nodes))
    if unknown:
        raise MissingNodes(
            f"job {job.name}: found the nodes {', '.join(unknown)}, expected some of {', '.join(sorted(nodes))}"
        )
    if not job.nodes or len(set(job.nodes)) != len(job.nodes):
        raise ValueError(f"job {job.name}: nodes {job.nodes}, expected at least one, each once")
    if job.ranks_per_node < 1:
        raise ValueError(f"job {job.name}: {job.ranks_per_node} ranks per node, expected at least 1")


def of(job: Job) -> dict[str, Any]:
    """The document of a job. Raises ValueError if the job's config is not JSON."""
    mappings = ("config", "environment", "labels", "kubernetes")
    plain = {**vars(job), **{name: dict(getattr(job, name)) for name in mappings}}
    try:
        document: dict[str, Any] = parsing.value(atomic.canonical_json(plain))
    except TypeError as error:
        raise ValueError(f"job {job.name}: its config is not a JSON document: {error}") from error
    return document


def job(document: Mapping[str, Any]) -> Job:
    """The job of a document. A document of an earlier revision may lack fields."""
    tuples = {name: tuple(document.get(name, ())) for name in ("command", "nodes", "prefer")}
    return Job(**{**document, **tuples})


def must_be_the_same(expected: Mapping[str, Any], there: Mapping[str, Any]) -> None:
    """Raises ValueError if the existing document `there` describes another job than `expected`."""
    actual = of(job(there))
    differing = [name for name in expected if name not in INCIDENTAL and expected[name] != actual[name]]
    if differing:
        raise ValueError(f"job {expected['name']}: already submitted with another {', '.join(differing)}")
