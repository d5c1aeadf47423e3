"""The exporter of a platform: reads its facts for each scrape, part by part, and says which part it could not read."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from slipway.operations.metrics import expose, platform
from slipway.operations.metrics.facts import DagsterReading, FleetNodeReading, PlatformFacts, TrainingReading
from slipway.operations.metrics.platform import SweepsReader
from slipway.operations.metrics.trainings import TrainingsReader
from slipway.resources.errors import Unavailable
from slipway.resources.fleet.health.node_health import NodeHealth
from slipway.resources.fleet.protocol import Fleet
from slipway.resources.trainings.store import Trainings, WorkQueue
from slipway.serving.records import ServingRecords
from slipway.trainer.base.exposition import Exposition
from slipway.trainer.metrics.exporter import JobExporter

if TYPE_CHECKING:
    from slipway.operations.metrics.dagster import DagsterReader

Part = TypeVar("Part")
JOBS_AT_ONCE = 50
"""So many running trainings at most have their jobs' figures exported from here."""


@dataclass(frozen=True)
class PlatformSources:
    """Where the facts of a platform are."""

    durable: Path
    tiers: dict[str, Path]
    """The folders of the tiers that are mounted here."""
    fleet: Callable[[], Fleet]
    health: Callable[[], NodeHealth]


class PlatformExporter:
    """Exports one platform, scrape by scrape."""

    def __init__(self, sources: PlatformSources, dagster: "DagsterReader | None", jobs: bool) -> None:
        """`dagster` None: without what Dagster says. `jobs`: export the figures of running jobs too, as their nodes do
        on a cluster."""
        self._sources = sources
        self._dagster = dagster
        self._jobs = jobs
        self._trainings = Trainings(sources.durable / "trainings")
        self._reader = TrainingsReader(self._trainings)
        self._sweeps = SweepsReader(sources.durable / "sweeps")
        self._serving = ServingRecords(sources.durable)
        self._exporters: dict[tuple[str, int], JobExporter] = {}
        self._unreadable: list[str] = []

    def text(self) -> str:
        """What a scrape gets now."""
        facts = self.facts()
        exposition = expose.samples(facts)
        if self._jobs:
            self._expose_jobs(exposition, facts.trainings)
        return exposition.text()

    def problems(self) -> dict[str, str]:
        """What the last scrape could not read."""
        return dict.fromkeys(self._unreadable, "the last scrape could not read it")

    def facts(self) -> PlatformFacts:
        """What there is now; a part that cannot be read is empty, and named."""
        begun = time.perf_counter()
        self._unreadable = []
        nobody: tuple[list[TrainingReading], int] = ([], 0)
        no_nodes: list[FleetNodeReading] = []
        trainings, read = self._part("trainings", self._reader.read, nobody)
        nodes = self._part("fleet", lambda: platform.nodes(self._sources.fleet(), self._sources.health()), no_nodes)
        return PlatformFacts(
            at=time.time(),
            trainings=tuple(trainings),
            duties=self._part(
                "duties", lambda: {duty.value: len(self._trainings.pending(duty)) for duty in WorkQueue}, {}
            ),
            nodes=tuple(nodes),
            sweeps=tuple(self._part("sweeps", self._sweeps.read, [])),
            served=tuple(self._part("serving", lambda: platform.served(self._serving), [])),
            tiers=tuple(self._part("tiers", lambda: platform.tiers(self._sources.tiers), [])),
            dagster=self._part("dagster", lambda: self._of_dagster(trainings), None),
            unreadable=tuple(self._unreadable),
            read=read,
            seconds=time.perf_counter() - begun,
        )

    def _of_dagster(self, trainings: Iterable[TrainingReading]) -> DagsterReading | None:
        return None if self._dagster is None else self._dagster.read(trainings)

    def _part(self, name: str, read: Callable[[], Part], otherwise: Part) -> Part:
        try:
            return read()
        except (Unavailable, ValueError, OSError):
            self._unreadable.append(name)
            return otherwise

    def _expose_jobs(self, into: Exposition, trainings: Iterable[TrainingReading]) -> None:
        running = [(one.id, one.incarnation) for one in trainings if one.state == "running"][:JOBS_AT_ONCE]
        self._exporters = {
            key: self._exporters.get(key) or JobExporter(self._trainings.store(key[0]).folder, key[1], None)
            for key in running
        }
        for (id, _), exporter in self._exporters.items():
            self._part(f"job {id}", lambda exporter=exporter: exporter.expose(into), None)  # type: ignore[misc]
