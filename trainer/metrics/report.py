"""The report of each step, in the ledger and on the console; and after each window of steps, what bounds them."""

import time
from collections import Counter
from dataclasses import asdict

from slipway.trainer.base import console
from slipway.trainer.config.hardware import peak_flops
from slipway.trainer.config.resolved import Config
from slipway.trainer.metrics import measures
from slipway.trainer.metrics.measures import Window, Work
from slipway.trainer.metrics.rank_figures import RankFigures
from slipway.trainer.metrics.timeline import Timeline
from slipway.trainer.metrics.usage import Usage
from slipway.trainer.node.world import World
from slipway.trainer.record.recorder import RankRecorder

OWN = ("data", "forward", "backward", "optimiser")
"""The parts of a step in which a rank waits for no other, where weights are not divided."""


def work(config: Config, world: World, flops_per_sample: int) -> Work:
    """The work of every step of this training."""
    batch, precision = config.batch, config.run.precision
    peak = peak_flops(world.device, "tf32" if precision == "fp32" and config.runtime.tf32 == "all" else precision)
    flops = flops_per_sample * batch.sequences
    return Work(batch.sequences, batch.sequences * batch.length, flops, peak * world.size if peak else None)


class StepReport:
    """The report of one rank. Figures of use and time are those of this rank, all others of the whole training."""

    def __init__(self, config: Config, world: World, work: Work, timeline: Timeline, recorder: RankRecorder) -> None:
        self._config, self.is_rank_zero, self._work = config, world.is_rank_zero, work
        self._timeline, self._usage, self._record = timeline, Usage(world.device), recorder.record
        self._own = RankFigures(recorder, world.size)
        self._window: _Sums | None = None
        self._is_judged = False
        self._begun = time.perf_counter()
        self._in_checkpoints = 0.0
        self.own_seconds = 0.0
        """Of the steps that were read last: how long this rank worked without waiting for another."""

    def follow(self, config: Config) -> None:
        """Go on with the windows of another configuration."""
        self._config = config

    def step(
        self, step: int, loss: float, accuracy: float, norm: float, rate: float, seconds: float
    ) -> dict[str, float]:
        """Report a step that is done; returns its figures, without those of this rank only."""
        done = {**measures.of_step(self._work, loss, accuracy, seconds), "learning_rate": rate, "gradient_norm": norm}
        done |= {"seconds": seconds}
        parts, usage = self._timeline.read(), self._usage.read()
        self.own_seconds = sum(spent for name, spent in parts.items() if name in OWN)
        timed = {f"{name}_seconds": spent for name, spent in parts.items()}
        counts = {"samples": step * self._work.samples, "tokens": step * self._work.tokens}
        self._record("step", step=step, **counts, **done, **timed, **usage)
        if self.is_rank_zero:
            console.say(console_line(step, self._config.run.steps, done))
        self._own.add(step, parts, usage)
        self._judge_window(step, parts, usage, done.get("mfu"))
        return done

    def close(self) -> None:
        """Record what this rank did in the last steps."""
        self._own.tell()

    def _judge_window(self, step: int, parts: dict[str, float], usage: dict[str, float], mfu: float | None) -> None:
        """Record what bounds each window of steps. An incarnation's first step, which warms up, is in no window."""
        if self._window is None:
            self._begun = time.perf_counter()
            self._window = _Sums(usage)
            return
        self._in_checkpoints += parts.get("checkpoint", 0.0)
        self._window.add(parts)
        if self._window.steps < self._due:
            return
        share = self._in_checkpoints / (time.perf_counter() - self._begun)
        window = self._window.close(usage, share, mfu)
        verdict = measures.verdict(window)
        shares = {f"{name}_share": spent / window.seconds for name, spent in window.parts.items()}
        self._record("bound", step=step, steps=window.steps, **asdict(verdict), **shares)
        self._window, self._is_judged = _Sums(usage), True

    @property
    def _due(self) -> int:
        """The steps of this window."""
        steps = self._config.observation.window_steps
        return steps if self._is_judged else min(steps, measures.FIRST_WINDOW)


class _Sums:
    """The sums over the steps of a window."""

    def __init__(self, usage: dict[str, float]) -> None:
        self.steps, self._begun = 0, time.perf_counter()
        self._parts: Counter[str] = Counter()
        self._retries = usage.get("gpu_memory_retries", 0)

    def add(self, parts: dict[str, float]) -> None:
        self.steps += 1
        self._parts.update(parts)

    def close(self, usage: dict[str, float], checkpoint_share: float, mfu: float | None) -> Window:
        seconds, retries = time.perf_counter() - self._begun, usage.get("gpu_memory_retries", 0) - self._retries
        return Window(self.steps, seconds, self._parts, checkpoint_share, usage, int(retries), mfu)


def console_line(step: int, steps: int, done: dict[str, float]) -> str:
    """Step, loss, learning rate, throughput, and MFU where the device's peak is known."""
    utilisation = f" mfu {done['mfu']:.1%}" if "mfu" in done else ""
    learnt = f"loss {done['loss']:.4f} lr {done['learning_rate']:.2e}"
    return f"step {step}/{steps} {learnt} {measures.throughput(done)}{utilisation}"
