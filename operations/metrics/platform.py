"""The facts of nodes, sweeps, tiers and served models for a scrape."""

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from slipway.assets.sweeps.store import SweepStore, sweeps
from slipway.operations.metrics.facts import FleetNodeReading, ServedReading, SweepReading, TierReading
from slipway.resources.fleet.health.node_health import NodeHealth
from slipway.resources.fleet.protocol import Fleet, Node
from slipway.serving.records import ServingRecords


def nodes(fleet: Fleet, health: NodeHealth) -> list[FleetNodeReading]:
    """The nodes of a fleet and their standings. Raises Unavailable."""
    standings = health.register.newest()
    return [
        FleetNodeReading(
            name=node.name,
            state=_state(node),
            standing=str(standings[node.name].standing) if node.name in standings else "healthy",
            evidence=len(standings[node.name].evidence) if node.name in standings else 0,
        )
        for node in fleet.nodes()
    ]


def _state(node: Node) -> str:
    return "ready" if node.ready else "closed" if node.cordoned else "lost"


class SweepsReader:
    """Reads the sweeps of one platform: of each log, what is new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stores: dict[str, SweepStore] = {}

    def read(self) -> list[SweepReading]:
        """All sweeps that were opened. Raises OSError, and ValueError for a log of another version."""
        opened = {store.sweep: store for store in sweeps(self._folder)}
        self._stores = {id: self._stores.get(id, store) for id, store in opened.items()}
        return list(self._readings())

    def _readings(self) -> Iterator[SweepReading]:
        for id, store in self._stores.items():
            if (state := store.state()) is not None:
                name = state.closed.outcome if state.closed else "paused" if state.pause else "open"
                trials = Counter(str(trial.state) for trial in state.trials.values())
                yield SweepReading(id, name, trials, state.best.value if state.best else None)


def served(records: ServingRecords) -> list[ServedReading]:
    """Every model of which anything was ever wanted. Raises OSError."""
    states = {model: records.state(model) for model in records.models()}
    return [
        ServedReading(model, int(state.settled.number) if state.settled else None, state.coming is not None)
        for model, state in states.items()
    ]


def tiers(folders: Mapping[str, Path]) -> list[TierReading]:
    """The file systems of the tiers that are mounted here. Raises OSError."""
    return [_tier(name, folder) for name, folder in folders.items() if folder.exists()]


def _tier(name: str, folder: Path) -> TierReading:
    begun = time.perf_counter()
    folder.stat()
    usage = shutil.disk_usage(folder)
    return TierReading(name, usage.total, usage.free, time.perf_counter() - begun)
