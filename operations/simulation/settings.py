"""What a simulation plays: the machines, how often and by what they fail, and what each part of a recovery costs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from slipway.trainer.base.invalid import Invalid, positive, require
from slipway.trainer.base.units import DAY

LLAMA_3 = {
    "GPU": (148, True),
    "GPU memory (HBM3)": (72, True),
    "software": (54, False),
    "network switch or cable": (35, False),
    "host maintenance": (32, True),
    "GPU memory (SRAM)": (19, True),
    "GPU system processor": (17, True),
    "network adapter": (7, True),
    "NCCL watchdog": (7, False),
    "silent data corruption": (6, True),
    "GPU thermal interface": (6, True),
    "other": (16, False),
}
"""Interruptions of 54 days on 16,384 GPUs by cause, and whether the node has to be replaced (Llama 3, arXiv:2407.21783,
table 5: 419 unexpected ones; the rarest causes are taken together)."""
LLAMA_3_PER_GPU_DAY = 466 / (54 * 16_384)
"""The same with the 47 planned interruptions."""
MAX_FAILURES, MAX_STARTS = 10_000_000, 50_000_000
"""What a play draws at most, as it keeps all in memory: failures, and starts with those that break in the middle."""
SILENT = ("NCCL watchdog", "silent data corruption")
"""Causes that no process dies of: they are found by a deadline, and not by a dead process."""
TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One training on one cluster, and what it costs when something breaks. Times are seconds.

    The defaults of what recovery costs are those of `benchmarks/RESULTS.md`: power-off to the next step of the next
    incarnation took 26.4 s there, 20 s of which passed until the cluster had noticed.
    """

    gpus: int
    days: float = 54.0
    gpus_per_node: int = 8
    failures_per_gpu_day: float = LLAMA_3_PER_GPU_DAY
    causes: Mapping[str, tuple[float, bool]] = field(default_factory=lambda: LLAMA_3)
    """The weight of each cause, and whether it takes a node."""
    detect: float = 20.0
    """From a dead process to the moment at which somebody knows."""
    hang: float = 300.0
    """The same where no process dies."""
    restart: float = 7.0
    """From there to ranks that have met again."""
    restore: float = 30.0
    """Reading a checkpoint: 405B over NVMe of every node at some GB/s takes about half a minute."""
    warm_up: float = 30.0
    """The first step: compilation, caches, the allocator."""
    stall: float = 0.3
    """What a checkpoint costs the steps."""
    interval: float = 0.0
    """Seconds of steps between two checkpoints; 0 for Daly's optimum."""
    repair_hours: float = 24.0
    """The mean time until a broken node comes back."""
    spares: int = 0
    """Nodes that stand ready beside those of the training."""
    shrinks: bool = True
    """Whether the training goes on with fewer nodes when there is no spare; otherwise it waits."""
    replicas: int = 1
    """Groups of ranks that each hold a whole model: a failure stops its own group alone. With 1, all stop."""
    pause: float = 0.0
    """With replicas: for how long all others stop, when one leaves and when it returns."""

    def __post_init__(self) -> None:
        positive(self, "gpus", "days", "gpus_per_node", "failures_per_gpu_day", "stall", "repair_hours", "replicas")
        for name in ("days", "failures_per_gpu_day", "stall", "repair_hours"):
            require(math.isfinite(getattr(self, name)), name, "expected a finite number")
        for name in ("detect", "hang", "restart", "restore", "warm_up", "interval", "spares", "pause"):
            value = getattr(self, name)
            require(math.isfinite(value) and value >= 0, name, "expected 0 or more")
        per_node = self.gpus_per_node
        only = "expected a multiple of gpus_per_node"
        require(self.gpus % per_node == 0, "gpus", f"{only} ({per_node})")
        require(self.replicas <= self.nodes, "replicas", f"expected {self.nodes} at most: a node or more for each")
        require(self.pause == 0 or self.replicas > 1, "pause", "expected replicas of 2 or more, of which some go on")
        self._require_bounds()

    def _require_bounds(self) -> None:
        """Raises Invalid for more events than a play can hold."""
        failures = self.days * DAY / self.between
        start = self.restart + self.restore + self.warm_up
        rate = f"at a failure each {self.between:.3g} s"
        require(
            failures <= MAX_FAILURES,
            "days",
            f"{rate} these would have {failures:.3g} failures, expected {MAX_FAILURES:,} at most",
        )
        starts = max(1.0, failures) * math.exp(min(700.0, start / self.between))  # each broken one is tried again
        require(
            starts <= MAX_STARTS,
            "restart",
            f"with restore and warm_up a start takes {start:.3g} s, and {rate} nearly none would be done; "
            "expected a shorter one, or fewer failures",
        )

    @property
    def nodes(self) -> int:
        return self.gpus // self.gpus_per_node

    @property
    def between(self) -> float:
        """The mean seconds between two failures while the training runs."""
        return DAY / (self.gpus * self.failures_per_gpu_day)


KINDS = {entry.name: entry.type for entry in fields(Scenario) if entry.name not in ("gpus", "causes")}


def scenario(gpus: int, assignments: Sequence[str]) -> Scenario:
    """The scenario with these fields. Raises ValueError for a field that it does not have, or a wrong value."""
    values: dict[str, float | int | bool] = {}
    for assignment in assignments:
        name, value = _value(assignment)
        if name in values:
            raise ValueError(f"{assignment}: found the field {name!r} twice, expected it once")
        values[name] = value
    try:
        return Scenario(gpus=gpus, **values)  # type: ignore[arg-type]
    except Invalid as error:
        actual = gpus if error.field == "gpus" else values.get(error.field, getattr(Scenario, error.field, ""))
        raise ValueError(f"{error.field}: found {actual}, {error}") from None


def _value(assignment: str) -> tuple[str, float | int | bool]:
    name, _, text = assignment.partition("=")
    if name not in KINDS:
        raise ValueError(f"{assignment}: found the field {name!r}, expected one of {', '.join(KINDS)}")
    if KINDS[name] in (bool, "bool"):
        if text not in TRUTHS:
            raise ValueError(f"{assignment}: found {text!r}, expected true or false")
        return name, TRUTHS[text]
    try:
        return name, int(text) if KINDS[name] in (int, "int") else float(text)
    except ValueError:
        kind = "a whole number" if KINDS[name] in (int, "int") else "a number"
        raise ValueError(f"{assignment}: found {text!r}, expected {kind}") from None
