"""Preflight history: the result of each preflight of a node, on the durable tier.

`<durable>/nodes/<node>/preflights/<number>.json` is create-only, so that two simultaneous preflights of a node each
have their own record.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from slipway.resources.errors import Unavailable
from slipway.resources.fleet.health.register import FOLDER as NODES
from slipway.trainer.base import codec
from slipway.trainer.record import files

FORMAT = "slipway.preflight/1"
FOLDER = "preflights"
_NAME = re.compile(r"(\d{6,})\.json")


@dataclass(frozen=True)
class PreflightRecord:
    """The result of one preflight."""

    node: str
    run: str
    """The id of the Dagster run."""
    verdict: str
    """The worst of its findings: excellent, acceptable, weak, faulty, or no reference."""
    faults: str
    """The faults in one line, or ""."""
    at: float
    """Seconds since the epoch, by the clock of the recording process."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """The measured rates, by name with unit, such as `disk read, GB/s`."""
    answers: tuple[str, ...] = ()
    """The ids of the evidence against the node at the time of the measurement."""
    number: int = 0
    """The number of this preflight of the node, from 1; set when it is added."""


@dataclass(frozen=True)
class PreflightHistory:
    """The preflights of the nodes of one platform."""

    durable: Path

    def of(self, node: str) -> list[PreflightRecord]:
        """All preflights of a node, the oldest first. Raises Unavailable."""
        return [self._read(node, number) for number in self._numbers(node)]

    def answered(self, node: str) -> set[str]:
        """The ids of all evidence that preflights of the node have followed up. Raises Unavailable."""
        return {id for preflight in self.of(node) for id in preflight.answers}

    def add(self, record: PreflightRecord) -> PreflightRecord:
        """Write a record, and return it with its number. Raises OSError and Unavailable."""
        while True:
            numbered = replace(record, number=max(self._numbers(record.node), default=0) + 1)
            if codec.create_only(self._path(record.node, numbered.number), numbered, FORMAT):
                return numbered

    def _numbers(self, node: str) -> list[int]:
        try:
            matches = map(_NAME.fullmatch, files.entries(self.durable / NODES / node / FOLDER) or ())
        except files.Unreadable as error:
            raise Unavailable(str(error)) from error
        return sorted(int(match[1]) for match in matches if match)

    def _read(self, node: str, number: int) -> PreflightRecord:
        try:
            return codec.read(self._path(node, number), PreflightRecord, FORMAT)
        except (OSError, codec.UndecodableRecord) as error:
            raise Unavailable(f"node {node}: its preflight {number} cannot be read: {error}") from error

    def _path(self, node: str, number: int) -> Path:
        return self.durable / NODES / node / FOLDER / f"{number:06d}.json"
