"""Collective node tasks: all-reduces among groups of nodes in parallel, and the bisection that uses them.

Each group is a launcher's job. Its name is a function of the bisection and the group, so that a repeated call adopts
it. A group that fails or does not end in time counts as unable to exchange.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.errors import Unavailable
from slipway.resources.launchers.protocol import Job, Launcher
from slipway.resources.node_tasks.protocol import Say, TaskOutcome
from slipway.trainer import node_task
from slipway.trainer.base import codec, digest
from slipway.trainer.node_task import CollectiveTask
from slipway.trainer.preflight import bisection
from slipway.trainer.preflight.bisection import BisectionState, NodeGroup

FOLDER = "bisections"
"""The folder of the outcomes, on the durable tier."""
GRACE_SECONDS = 5.0
START_SECONDS = 300.0
"""How long the start of a job may take in addition to its measurement: pods, imports, rendezvous."""


@dataclass(frozen=True)
class Together:
    """Measures groups of nodes for one bisection."""

    launcher: Launcher
    folder: Path
    """The folder of this bisection on the durable tier, at the same path on all nodes."""
    task: CollectiveTask
    ranks_per_node: int
    poll_seconds: float
    command: tuple[str, ...] = ("python", "-P", "-m", "slipway.trainer.node_task")
    expected: float | None = None
    """The bus bandwidth of a good group in GB/s; None to compare with the fastest group."""
    rates: dict[NodeGroup, float | None] = field(default_factory=dict)
    """The bus bandwidth of each group in GB/s; None for a group that could not exchange."""

    def bisect(self, suspects: Sequence[str], good: Sequence[str], say: Say) -> BisectionState:
        """Find the nodes that disturb the network. Raises ValueError for a group that no job can have."""
        state = bisection.begin(suspects, good)
        while True:
            groups = bisection.next_round(state)
            if not groups:
                return state
            self.rates.update(self._measured(groups, say))
            fastest = max((rate for rate in self.rates.values() if rate is not None), default=0.0)
            judged = {group: bisection.is_good(self.rates[group], fastest, self.expected) for group in groups}
            for group, is_good in judged.items():
                say(f"{', '.join(group.nodes)}: {_rate_text(self.rates[group])}: {'good' if is_good else 'not good'}")
            state = bisection.after(state, judged)

    def _measured(self, groups: list[NodeGroup], say: Say) -> dict[NodeGroup, float | None]:
        """The bus bandwidth of each group, measured in parallel."""
        for group in groups:
            self.launcher.submit(self._job(group))
        waiting = list(groups)
        rates = dict[NodeGroup, float | None]()
        deadline = time.monotonic() + self.task.seconds + START_SECONDS
        while waiting:
            for group in list(waiting):
                try:
                    ended = self.launcher.poll(self._name(group)).state.terminal
                except Unavailable as error:
                    say(f"the launcher does not answer ({error}); trying again")
                    continue
                if ended or time.monotonic() > deadline:
                    waiting.remove(group)
                    rates[group] = self._rate(group)
                    self.launcher.cancel(self._name(group), GRACE_SECONDS)
                    self.launcher.release(self._name(group))
            if waiting:
                time.sleep(self.poll_seconds)
        return rates

    def _job(self, group: NodeGroup) -> Job:
        return Job(
            name=self._name(group),
            command=self.command,
            config=node_task.document(self.task, self._outcome(group)),
            nodes=group.nodes,
            ranks_per_node=self.ranks_per_node,
            labels={"task": self.task.KIND},
        )

    def _rate(self, group: NodeGroup) -> float | None:
        done = codec.read_if_there(self._outcome(group), TaskOutcome)
        return None if done is None or done.failure else float(done.result["gigabytes_per_second"])

    def _name(self, group: NodeGroup) -> str:
        return f"collective-{self.folder.name}-{digest.sha256(' '.join(group.nodes).encode())[:12]}"

    def _outcome(self, group: NodeGroup) -> Path:
        return self.folder / f"{self._name(group)}.json"


def _rate_text(rate: float | None) -> str:
    return "no exchange" if rate is None else f"{rate:.3g} GB/s"
