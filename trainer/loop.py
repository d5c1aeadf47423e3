"""The loop: one training in one incarnation, from the newest good checkpoint to the last step.

Reads top-down: `train` meets the data and the model, restores, steps, commits, and records how it ended.
Every number of a step depends on the configuration and the step alone, not on the number of ranks
(beyond the rounding of a sum in another order) and not on how often the training was interrupted.
"""

import contextlib
import math
import os
import platform
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainer import affinity, fabric, fence, initial, ledger, order
from trainer import config as configuration
from trainer.checkpoint import format, restore, state
from trainer.config import Config
from trainer.engine import Engine
from trainer.feed import Feed
from trainer.heartbeat import Heartbeat
from trainer.ledger import Ledger
from trainer.optim import learning_rate
from trainer.profiling import Profiler
from trainer.report import Report, work
from trainer.timeline import Timeline
from trainer.world import World


class Diverged(Exception):
    """The loss or the gradients are not finite any more."""


def train(config: Config, world: World, token: fence.Token) -> str:
    """Train to the last step, or to the step at which a SIGTERM asked to stop; returns the outcome.

    "succeeded" leaves an exit record; "stopped" leaves a checkpoint of the step reached. Raises fence.Superseded,
    Diverged (which leaves an exit record too), and ValueError for a configuration that does not fit the data.
    """
    trainer = Trainer(config, world, token)
    stop = _StopRequest()
    trainer.restore()
    trainer.feed.stage_rest(trainer.step)
    try:
        return _step_to_the_end(config, trainer, stop)
    except Diverged as error:
        trainer.record_end("failed", str(error))
        raise
    finally:
        trainer.profiler.end(trainer.step)


def _step_to_the_end(config: Config, trainer: "Trainer", stop: "_StopRequest") -> str:
    """The steps that are left; returns the outcome."""
    while trainer.step < config.run.steps:
        asked_to_stop = trainer.train_step(bool(stop))
        if trainer.due(config.validation.every):
            with trainer.timeline.part("validation"):
                trainer.validate()
        if asked_to_stop or trainer.due(config.checkpoint.every) or trainer.step == config.run.steps:
            with trainer.timeline.part("checkpoint"):
                trainer.commit()
        if asked_to_stop and trainer.step < config.run.steps:
            trainer.record("ended", outcome="stopped", step=trainer.step, reason="asked to stop")
            return "stopped"
    trainer.confirm_last_commit()
    trainer.record_end("succeeded", "all steps done")
    return "succeeded"


class Trainer:
    """The pieces of one incarnation on one rank."""

    def __init__(self, config: Config, world: World, token: fence.Token) -> None:
        self.config, self.world, self.token = config, world, token
        self.store, self.durable = Path(config.placement.store), Path(config.placement.durable)
        self._checkpoints = f"checkpoints/{config.training}"
        self.step = 0
        self.metrics: dict[str, float] = {}
        self.best: dict[str, float] = {}
        self._heartbeat = Heartbeat(self.store, token, world.rank)
        self._ledger = Ledger(self.store, token, f"rank-{world.rank}") if world.leads else None
        self.timeline = Timeline(world.device)
        self.profiler = self._profiler()
        self._beat("staging")
        self.feed = Feed(config, world)
        self._beat("building")
        self.engine = Engine(config, world, self.feed.data, self.timeline)
        self.model, self.optimiser = self.engine.model, self.engine.optimiser
        steady = work(config, world, self.model.flops_per_sample)
        self.report = Report(config, world, steady, self.timeline, self.record)
        self.record("started", world=world.size, device=str(world.device), torch=torch.__version__, **self._hardware())

    def record(self, event: str, **fields: Any) -> None:
        """An event for the ledger; only rank 0 writes. A full disk costs the event, not the run."""
        if self._ledger:
            with _told_if_unwritable("ledger"):
                self._ledger.write(event, **fields)

    def due(self, every: int) -> bool:
        """Whether something that happens every `every` steps (0: never) happens now."""
        return every > 0 and self.step % every == 0

    def restore(self) -> None:
        """Continue from the newest good checkpoint, if there is one."""
        self._beat("restoring")
        begun = time.time()
        if self.world.leads:
            format.sweep(self.durable / self._checkpoints)
        found = restore.newest_good(self.store, self.durable, self._on_damaged) if self.world.leads else None
        commit = self.world.from_leader(found[0] if found else None)
        if commit is None:
            self._start_from_given_weights()
            return
        files = found[1] if found else format.read(self.durable / commit.folder, commit.manifest)
        state.load_model(files, self.model)
        state.load_optimiser(files, self.model, self.optimiser)
        progress = state.read_progress(files)
        self.step, self.metrics, self.best = progress.step, progress.metrics, progress.best
        if self.world.rank < len(progress.random_states):
            state.restore_random_state(progress.random_states[self.world.rank])
        self.record("restored", step=self.step, commit=commit.name, seconds=time.time() - begun)

    def _start_from_given_weights(self) -> None:
        """Take the weights that the configuration names, if it names any; their loss is what the first step finds."""
        if self.config.init is None:
            return
        begun = time.time()
        folder = Path(self.config.placement.init)
        weights = initial.weights(self.config.init, folder, self.config.model, self.feed.snapshot.tokenizer)
        self.engine.load_weights(weights)
        self.record("initialised", digest=self.config.init.digest, folder=str(folder), seconds=time.time() - begun)
        if self.config.validation.every:
            self.validate()

    def train_step(self, stop: bool) -> bool:
        """One optimiser step over the global batch; says whether any rank was asked to stop."""
        self._beat("training")
        self.profiler.step_begins(self.step + 1)
        begun = time.perf_counter()
        with self.timeline.part("data"):
            rows, places = self.feed.rows(self.step)
        rate = learning_rate(self.config.optimiser, self.step, self.config.run.steps)
        mine = self.engine.accumulate(rows, places)
        with self.timeline.part("optimiser"):
            norm = self.engine.clip()
        with self.timeline.part("communication"):
            total, correct, stopping = self.world.sum(mine.loss, mine.correct, float(stop))
        targets = self.config.batch.sequences * self.model.targets_per_sample
        # Before the weights take them in: the newest checkpoint is from before the step that went wrong.
        _finite(f"the loss of step {self.step + 1}", total)
        _finite(f"the gradient norm of step {self.step + 1}", norm)
        with self.timeline.part("optimiser"):
            self.engine.update(rate)
        self.step += 1
        seconds = time.perf_counter() - begun
        self.metrics |= self.report.step(self.step, total / targets, correct / targets, norm, rate, seconds)
        return stopping > 0

    def validate(self) -> None:
        """The mean loss over the first sequences of the validation split, shared out over the ranks."""
        self._beat("validating")
        count = min(self.config.validation.sequences, len(self.feed.held_out))
        mine = order.share(count, self.world.rank, self.world.size)
        loss = correct = 0.0
        for start in range(mine.start, mine.stop, self.config.batch.micro):
            numbers = np.arange(start, min(start + self.config.batch.micro, mine.stop), dtype=np.uint64)
            sums = self.engine.measure(self.feed.held_out.read(numbers), numbers)
            loss, correct = loss + sums.loss, correct + sums.correct
        targets = count * self.model.targets_per_sample
        mean, accuracy = (total / targets for total in self.world.sum(loss, correct))
        _finite(f"the validation loss after step {self.step}", mean)
        if not self.best or mean < self.best["validation_loss"]:
            self.best = {"validation_loss": mean, "step": self.step}
        self.metrics |= {"validation_loss": mean, "validation_accuracy": accuracy}
        self.record("validated", step=self.step, loss=mean, accuracy=accuracy)

    def commit(self) -> None:
        """Write a checkpoint and commit it. A full disk is an event in the ledger, not the end of the run."""
        self._beat("committing")
        random_states = self.world.gather(state.random_state())
        if not self.world.leads:
            return
        begun = time.time()
        files = state.pack(self.model, self.optimiser, self._progress(random_states))
        folder = f"{self._checkpoints}/{self.step:09d}.{self.token}"
        try:
            manifest = format.write(self.durable / folder, format.LAYOUT, files)
            commit = fence.Commit(self.step, self.token, folder, manifest, self.metrics, time.time())
            fence.commit(self.store, commit)
        except OSError as error:
            self.record("commit_failed", step=self.step, reason=str(error))
            return
        size = sum(map(len, files.values()))
        self.record("committed", step=self.step, commit=commit.name, seconds=time.time() - begun, bytes=size)

    def confirm_last_commit(self) -> None:
        """Raises OSError when the checkpoint of the step reached is not committed (a full disk)."""
        committed = fence.commits(self.store) if self.world.leads else []
        if self.world.leads and (not committed or committed[-1].step != self.step):
            raise OSError(f"the checkpoint of the last step ({self.step}) could not be committed")

    def record_end(self, outcome: str, reason: str) -> None:
        """The durable mark of an end that starting again would not change."""
        self.record("ended", outcome=outcome, step=self.step, reason=reason)
        if self.world.leads:
            done = fence.Exit(self.token.incarnation, outcome, reason, self.step, "trainer", time.time())
            fence.record_exit(self.store, done)

    def _beat(self, phase: str) -> None:
        with _told_if_unwritable("heartbeat"):
            self._heartbeat.beat(phase, self.step)

    def _hardware(self) -> dict[str, Any]:
        """The settings that this rank runs with and where each comes from, and the processors that it may use."""
        holding = fabric.holding(self.config.hardware, os.environ)
        return {"settings": holding, "processors": affinity.listed(os.sched_getaffinity(0))}

    def _profiler(self) -> Profiler:
        """Rank 0 profiles the steps that the recipe names, any rank those after a signal."""
        name, folder = f"{self.token}.{self.world.rank:05d}", self.store / "profiles"
        return Profiler(self.config.observation, self.timeline, folder, name, self.world.leads, self._record_own)

    def _record_own(self, event: str, **fields: Any) -> None:
        """An event of this rank alone; ranks other than 0 have such a segment of the ledger only from then on."""
        with _told_if_unwritable("ledger"):
            writer = f"profiler-{self.world.rank}"
            ledger.note(self.store, self.token, writer, event, rank=self.world.rank, **fields)

    def _progress(self, random_states: list[dict[str, Any]]) -> state.Progress:
        samples = self.step * self.config.batch.sequences
        return state.Progress(
            step=self.step,
            samples=samples,
            epoch=samples // len(self.feed.order),
            random_states=random_states,
            metrics=self.metrics,
            best=self.best,
            config=configuration.dump(self.config),
            lineage={
                "snapshot": self.config.snapshot,
                "tokenizer": self.feed.snapshot.tokenizer.sha256,
                "revision": os.environ.get("SLIPWAY_REVISION", ""),
                "torch": torch.__version__,
                "python": platform.python_version(),
                "world": self.world.size,
            },
            at=time.time(),
        )

    def _on_damaged(self, commit: fence.Commit, reason: str) -> None:
        self.record("set_aside", commit=commit.name, reason=reason)


class _StopRequest:
    """True once this process was sent SIGTERM."""

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def __bool__(self) -> bool:
        return self._asked

    def _ask(self, *_: object) -> None:
        self._asked = True


def _finite(what: str, value: float) -> None:
    """Raises Diverged unless `value` is a finite number."""
    if not math.isfinite(value):
        raise Diverged(f"{what} is {value}")


@contextlib.contextmanager
def _told_if_unwritable(what: str) -> Iterator[None]:
    """Training goes on while what it says of itself cannot be written; that is said on stderr instead."""
    try:
        yield
    except OSError as error:
        print(f"trainer: the {what} cannot be written: {error}", file=sys.stderr, flush=True)
