"""The report of each step, in the ledger and on the console; and the bound of each window of steps."""

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

OWN = ("data", "forward", "backward", "optimizer")
"""The parts of a step in which a rank waits for no other, if weights are not divided."""


def work(config: Config, world: World, flops_per_sample: int) -> Work:
    """The work of every step of this training."""
    batch = config.batch
    uses_tf32 = config.run.precision == "fp32" and config.runtime.tf32 == "all"
    peak = peak_flops(world.device, "tf32" if uses_tf32 else config.run.precision)
    flops = flops_per_sample * batch.sequences
    return Work(batch.sequences, batch.sequences * batch.length, flops, peak * world.size if peak else None)


class StepReport:
    """The report of one rank. Figures of usage and time are this rank's, all others the whole training's."""

    def __init__(self, config: Config, world: World, work: Work, timeline: Timeline, recorder: RankRecorder) -> None:
        self._config = config
        self.is_rank_zero = world.is_rank_zero
        self._work = work
        self._record = recorder.record

        # What this rank measures.
        self._timeline = timeline
        self._usage = Usage(world.device)
        self._own = RankFigures(recorder, world.size)
        self.own_seconds = 0.0
        """Seconds of the last step's parts in which this rank waited for no other."""

        # The present window of steps; None before the first step.
        self._window: _Sums | None = None
        self._is_judged = False
        """Whether an earlier window has a verdict."""
        self._begun = time.perf_counter()
        """The end of the first step."""
        self._in_checkpoints = 0.0
        """Seconds in checkpoints since then."""

    def follow(self, config: Config) -> None:
        """Go on with the windows of another configuration."""
        self._config = config

    def step(
        self, step: int, loss: float, accuracy: float, norm: float, rate: float, seconds: float
    ) -> dict[str, float]:
        """Report a step that is done; returns its figures, without those of this rank only."""
        done = measures.of_step(self._work, loss, accuracy, seconds)
        done |= {"learning_rate": rate, "gradient_norm": norm, "seconds": seconds}
        parts = self._timeline.read()
        usage = self._usage.read()
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
        """Record this rank's figures of the last steps."""
        self._own.tell()

    def _judge_window(self, step: int, parts: dict[str, float], usage: dict[str, float], mfu: float | None) -> None:
        """Record the bound of each window of steps. An incarnation's first step, which warms up, is in no window."""
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
        self._window = _Sums(usage)
        self._is_judged = True

    @property
    def _due(self) -> int:
        """The steps of this window."""
        steps = self._config.observation.window_steps
        return steps if self._is_judged else min(steps, measures.FIRST_WINDOW)


class _Sums:
    """The sums over the steps of a window."""

    def __init__(self, usage: dict[str, float]) -> None:
        self.steps = 0
        self._begun = time.perf_counter()
        self._parts: Counter[str] = Counter()
        self._retries = usage.get("gpu_memory_retries", 0)

    def add(self, parts: dict[str, float]) -> None:
        self.steps += 1
        self._parts.update(parts)

    def close(self, usage: dict[str, float], checkpoint_share: float, mfu: float | None) -> Window:
        seconds = time.perf_counter() - self._begun
        retries = usage.get("gpu_memory_retries", 0) - self._retries
        return Window(self.steps, seconds, self._parts, checkpoint_share, usage, int(retries), mfu)


def console_line(step: int, steps: int, done: dict[str, float]) -> str:
    """Step, loss, learning rate, throughput, and MFU if the device's peak is known."""
    line = f"step {step}/{steps} loss {done['loss']:.4f} lr {done['learning_rate']:.2e} {measures.throughput(done)}"
    if "mfu" in done:
        line += f" mfu {done['mfu']:.1%}"
    return line
