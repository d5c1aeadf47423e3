"""Events: what happened to a snapshot, a training and its checkpoints, as OpenLineage's run events.

The format is OpenLineage 2-0-2 (https://openlineage.io/spec/2-0-2/OpenLineage.json). A training is one run of the job
that its recipe names; its snapshot is the input, and each checkpoint is an output. A run's id follows from the
training's id, so an event that is sent twice is the same event. Our own facets, whose names begin with `slipway_`, hold
what the standard has no facet for (a training, a checkpoint, a snapshot's manifest). Pure.
"""

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.data.mixtures import MixtureSnapshot
from slipway.trainer.data.snapshots import Snapshot
from slipway.trainer.record.fence import Claim, Commit, Exit

NAMESPACE = "slipway"
"""The namespace of all jobs and datasets."""
PRODUCER = "https://pypi.org/project/slipway/"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
EVENT_SCHEMA = f"{SCHEMA}#/$defs/RunEvent"
FACETS = "https://openlineage.io/spec/facets"
_IDS = uuid.UUID("6f9619ff-8b86-5d01-b42d-00cf4fc964ff")
_ENDS = {"succeeded": "COMPLETE", "failed": "FAIL", "stopped": "ABORT"}

RunEvent = dict[str, Any]


def of_snapshot(snapshot: Snapshot, at: float) -> RunEvent:
    """The event that a snapshot was made from its source; `at` is in seconds since the epoch."""
    known = {"sha256": snapshot.sha256, "recipe": snapshot.recipe, "documents": dict(snapshot.documents)}
    facets = {
        "version": _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=snapshot.sha256),
        "slipway_snapshot": _own("DatasetFacet", **known),
    }
    return _event(
        "COMPLETE",
        at,
        run=_run(f"snapshot {snapshot.sha256}"),
        job=_job(f"{snapshot.dataset}/snapshot", "DATASET"),
        inputs=_inputs(snapshot),
        outputs=[{"namespace": NAMESPACE, "name": snapshot.dataset, "facets": facets}],
    )


def _inputs(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The inputs of a snapshot: the snapshots of a mixture, or else its source."""
    if isinstance(snapshot, MixtureSnapshot):
        return [_input(part.dataset, part.snapshot) for part in snapshot.sources]
    source = {"namespace": NAMESPACE, "name": f"{snapshot.dataset}/source"}
    version = str(snapshot.source.get("digest", ""))
    version_facet = {"version": _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=version)} if version else {}
    return [{**source, "facets": {**version_facet, "slipway_source": _own("DatasetFacet", **dict(snapshot.source))}}]


@dataclass(frozen=True)
class TrainingEvents:
    """The events of a training so far."""

    facts: TrainingFacts
    claims: list[Claim]
    dataset: Callable[[], str]
    """The name of its snapshot's dataset; called only if there is an event."""

    def but(self, sent: Collection[str]) -> Iterator[tuple[str, RunEvent]]:
        """The events that were not sent, in their order, each with its fixed name.

        Raises ValueError if the training's records cannot be read.
        """
        facts = self.facts
        for index, claim in enumerate(self.claims):
            name = f"start {claim.token}"
            if name not in sent:
                yield name, self._started(claim, "START" if index == 0 else "RUNNING")
        for commit in facts.commits:
            name = f"checkpoint {commit.name}"
            if name not in sent:
                yield name, self._committed(commit)
        if facts.over and facts.ended is not None:
            name = f"end {facts.ended.incarnation}"
            if name not in sent:
                yield name, self._ended(facts.ended)

    def _started(self, claim: Claim, kind: str) -> RunEvent:
        start = {"incarnation": claim.token.incarnation, "nodes": list(claim.nodes)}
        facet = _own("RunFacet", **start, cause=claim.cause, by=claim.by)
        return self._of_run(kind, claim.at, {"slipway_start": facet})

    def _committed(self, commit: Commit) -> RunEvent:
        facts = {"training": self.facts.id, "step": commit.step, "token": str(commit.token), "folder": commit.folder}
        facets = {
            "version": _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=commit.manifest),
            "slipway_checkpoint": _own("DatasetFacet", **facts, metrics=dict(commit.metrics)),
        }
        output = {"namespace": NAMESPACE, "name": f"{self.facts.specification.recipe}/checkpoint", "facets": facets}
        return self._of_run("RUNNING", commit.at, {}, [output])

    def _ended(self, ended: Exit) -> RunEvent:
        facets: dict[str, Any] = {}
        if ended.outcome == "failed":
            error = {"message": ended.reason or ended.kind or "failed", "programmingLanguage": "Python"}
            facets["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet", **error)
        return self._of_run(_ENDS[ended.outcome], ended.at, facets)

    def _of_run(
        self, kind: str, at: float, facets: Mapping[str, Any], outputs: list[dict[str, Any]] | None = None
    ) -> RunEvent:
        """An event of the training's run, with its inputs."""
        id = self.facts.id
        specification = self.facts.specification
        known = {"training": id, "recipe": specification.recipe, "tokenizer": specification.tokenizer}
        run = _run(f"training {id}", slipway_training=_own("RunFacet", **known, cause=specification.cause), **facets)
        inputs = [_input(self.dataset(), specification.snapshot)]
        parent = specification.branch
        if parent:
            inputs.append(_input(f"{parent.training.rpartition('-')[0]}/checkpoint", parent.manifest))
        return _event(kind, at, run, _job(specification.recipe, "TRAINING"), inputs, outputs or [])


def _input(name: str, version: str) -> dict[str, Any]:
    facets = {"version": _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=version)}
    return {"namespace": NAMESPACE, "name": name, "facets": facets}


def _event(
    kind: str,
    at: float,
    run: dict[str, Any],
    job: dict[str, Any],
    inputs: list[dict[str, Any]],
    outputs: list[dict[str, Any]],
) -> RunEvent:
    return {
        "eventType": kind,
        "eventTime": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
        "run": run,
        "job": job,
        "inputs": inputs,
        "outputs": outputs,
        "producer": PRODUCER,
        "schemaURL": EVENT_SCHEMA,
    }


def _run(name: str, **facets: Any) -> dict[str, Any]:
    return {"runId": str(uuid.uuid5(_IDS, name)), "facets": facets}


def _job(name: str, kind: str) -> dict[str, Any]:
    job_type = {"processingType": "BATCH", "integration": "SLIPWAY", "jobType": kind}
    return {"namespace": NAMESPACE, "name": name, "facets": {"jobType": _facet("2-0-4/JobTypeJobFacet", **job_type)}}


def _facet(name: str, /, **fields: Any) -> dict[str, Any]:
    """A facet of the standard; `name` is the name of its schema, with the version."""
    schema = f"{FACETS}/{name}.json#/$defs/{name.rpartition('/')[2]}"
    return {"_producer": PRODUCER, "_schemaURL": schema, **fields}


def _own(base: str, /, **fields: Any) -> dict[str, Any]:
    """A facet of our own, which extends a base of the standard."""
    return {"_producer": PRODUCER, "_schemaURL": f"{SCHEMA}#/$defs/{base}", **fields}
