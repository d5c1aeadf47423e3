"""The report: what a rank says of each step (a line in the ledger, a line on the console), and of what bounds it."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict

from trainer import figures
from trainer.config import Config
from trainer.figures import Window, Work
from trainer.hardware import peak_flops
from trainer.timeline import Timeline
from trainer.usage import Usage
from trainer.world import World


def work(config: Config, world: World, flops_per_sample: int) -> Work:
    """What every step of this training has to do."""
    batch, peak = config.batch, peak_flops(world.device, config.run.precision)
    flops = flops_per_sample * batch.sequences
    return Work(batch.sequences, batch.sequences * batch.length, flops, peak * world.size if peak else None)


class Report:
    """One rank's. Figures of use and of time are this rank's own, all the others the whole training's."""

    def __init__(
        self, config: Config, world: World, work: Work, timeline: Timeline, record: Callable[..., None]
    ) -> None:
        """`record` writes an event to the ledger."""
        self._config, self.leads, self._work = config, world.leads, work
        self._timeline, self._usage, self._record = timeline, Usage(world.device), record
        self._window: _Sums | None = None
        self._begun = time.perf_counter()
        self._in_checkpoints = 0.0

    def step(
        self, step: int, loss: float, accuracy: float, norm: float, rate: float, seconds: float
    ) -> dict[str, float]:
        """Tell of a step that is done; returns its figures, without those of this rank's own."""
        done = {**figures.of_step(self._work, loss, accuracy, seconds), "learning_rate": rate, "gradient_norm": norm}
        done |= {"seconds": seconds}
        parts, usage = self._timeline.read(), self._usage.read()
        timed = {f"{name}_seconds": spent for name, spent in parts.items()}
        seen = {"samples": step * self._work.samples, "tokens": step * self._work.tokens}
        self._record("step", step=step, **seen, **done, **timed, **usage)
        if self.leads:
            print(console_line(step, self._config.run.steps, done), flush=True)
        self._weigh(step, parts, usage, done.get("mfu"))
        return done

    def _weigh(self, step: int, parts: dict[str, float], usage: dict[str, float], mfu: float | None) -> None:
        """Every so many steps, what bounds them. An incarnation's first step, which warms up, is not looked at."""
        if self._window is None:
            self._begun = time.perf_counter()
            self._window = _Sums(usage)
            return
        self._in_checkpoints += parts.get("checkpoint", 0.0)
        self._window.add(parts)
        if self._window.steps < self._config.observation.window_steps:
            return
        share = self._in_checkpoints / (time.perf_counter() - self._begun)
        window = self._window.close(usage, share, mfu)
        verdict = figures.verdict(window)
        shares = {f"{name}_share": spent / window.seconds for name, spent in window.parts.items()}
        self._record("bound", step=step, steps=window.steps, **asdict(verdict), **shares)
        self._window = _Sums(usage)


class _Sums:
    """What the steps of a window add up to."""

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
    return f"step {step}/{steps} {learnt} {figures.throughput(done)}{utilisation}"
