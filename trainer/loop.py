"""The loop: one training in one incarnation, from the newest good checkpoint to the last step.

Reads top-down: `train` meets the data and the model, restores, steps, commits, and records how it ended.
Every number of a step depends on the configuration and the step alone, not on the number of ranks
(beyond the rounding of a sum in another order) and not on how often the training was interrupted.
"""

import contextlib
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainer import affinity, contents, fabric, fence, initial, ledger, order
from trainer import config as configuration
from trainer.account import Account, told_if_unwritable
from trainer.checkpoint import format, parts, random_state, restore
from trainer.checkpoint.clock import Clock
from trainer.checkpoint.places import Places
from trainer.checkpoint.progress import Progress
from trainer.checkpoint.saver import Saver
from trainer.config import Config
from trainer.engine import Engine
from trainer.feed import Feed
from trainer.processes import StopRequest
from trainer.profiling import Profiler
from trainer.report import Report, work
from trainer.schedule import learning_rate
from trainer.scores import Diverged, finite
from trainer.world import World


def train(config: Config, world: World, token: fence.Token) -> str:
    """Train to the last step, or to the step at which a SIGTERM asked to stop; returns the outcome.

    "succeeded" leaves an exit record; "stopped" leaves a checkpoint of the step reached. Raises fence.Superseded,
    Diverged (which leaves an exit record too), and ValueError for a configuration that does not fit the data.
    """
    with contextlib.closing(Trainer(config, world, token)) as trainer:
        stop = StopRequest()
        trainer.restore()
        trainer.feed.stage_rest(trainer.step)
        try:
            return _step_to_the_end(config, trainer, stop)
        except Diverged as error:
            trainer.finish_commits()
            trainer.record_end("failed", str(error))
            raise


def _step_to_the_end(config: Config, trainer: "Trainer", stop: StopRequest) -> str:
    """The steps that are left; returns the outcome."""
    while trainer.step < config.run.steps:
        asked_to_stop = trainer.train_step(bool(stop))
        if trainer.due(config.validation.every):
            with trainer.timeline.part("validation"):
                trainer.validate()
        last = asked_to_stop or trainer.step == config.run.steps
        if tiers := trainer.clock.at_the_end() if last else trainer.tiers_due:
            with trainer.timeline.part("checkpoint"):
                trainer.commit(tiers, last)
        if asked_to_stop and trainer.step < config.run.steps:
            trainer.finish_commits()
            trainer.record("ended", outcome="stopped", step=trainer.step, reason="asked to stop")
            return "stopped"
    trainer.finish_commits()
    trainer.confirm_last_commit()
    trainer.record_end("succeeded", "all steps done")
    return "succeeded"


class Trainer:
    """The pieces of one incarnation on one rank."""

    def __init__(self, config: Config, world: World, token: fence.Token) -> None:
        self.config, self.world, self.token = config, world, token
        self.saver = Saver(config.training, config.placement, world, token, config.storage)
        self.clock = Clock(config, world)
        self.tiers_due: tuple[str, ...] = ()
        self.store, self.durable = Path(config.placement.store), Path(config.placement.durable)
        self._checkpoints = f"checkpoints/{config.training}"
        self.step = 0
        self.metrics: dict[str, float] = {}
        self.best: dict[str, float] = {}
        self._account = Account(self.store, token, world.rank)
        self._beat("staging")
        self.feed = Feed(config, world)
        self._beat("building")
        self.engine = Engine(config, world, self.feed.data, self.record)
        self.model, self.timeline = self.engine.model, self.engine.timeline
        self.profiler = self._profiler()
        steady = work(config, world, self.engine.flops_per_sample)
        self.report = Report(config, world, steady, self.timeline, self.record)
        self.record("started", world=world.size, device=str(world.device), torch=torch.__version__, **self._hardware())

    def close(self) -> None:
        """End what runs beside the steps."""
        self.profiler.end(self.step)
        self.saver.close()

    def record(self, event: str, **fields: Any) -> None:
        """An event for the ledger; only rank 0 writes."""
        self._account.record(event, **fields)

    def due(self, every: int) -> bool:
        """Whether something that happens every `every` steps (0: never) happens now."""
        return every > 0 and self.step % every == 0

    def restore(self) -> None:
        """Continue from the newest good checkpoint, if there is one."""
        self._beat("restoring")
        begun = time.time()
        if self.world.leads:
            format.sweep(self.durable / self._checkpoints)
            parts.sweep(self.store)
        found = restore.newest_good(self.store, self.world, Places(self.config.placement, self.world), self._on_damaged)
        if found is None:
            self._start_from_given_weights()
            return
        commit, kept = found
        restore.load(self.engine, kept, self.world)
        self.saver.continues(commit)
        progress = kept.progress()
        self.step, self.metrics, self.best = progress.step, progress.metrics, progress.best
        if self.world.rank < len(progress.random_states):
            random_state.restore(progress.random_states[self.world.rank])
        self.record("restored", step=self.step, commit=commit.name, seconds=time.time() - begun)

    def _start_from_given_weights(self) -> None:
        """Take the weights that the configuration names, if it names any; their loss is what the first step finds."""
        if self.config.init is None:
            return
        begun = time.time()
        folder = Path(self.config.placement.init)
        tokenizer = contents.tokenizer(self.feed.snapshot)
        weights = initial.weights(self.config.init, folder, self.config.model, tokenizer)
        self.engine.load_weights(weights)
        self.record("initialised", digest=self.config.init.digest, folder=str(folder), seconds=time.time() - begun)
        if self.config.validation.every:
            self.validate()

    def train_step(self, stop: bool) -> bool:
        """One optimiser step over the global batch; says whether to stop, now that any rank was asked to."""
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
            wish = self.clock.wish(self.step + 1)
            total, correct, stopping, wish = self.world.sum(mine.loss, mine.correct, float(stop), wish)
        targets = self.config.batch.sequences * self.engine.targets_per_sample
        # Before the weights take them in: the newest checkpoint is from before the step that went wrong.
        finite(f"the loss of step {self.step + 1}", total)
        finite(f"the gradient norm of step {self.step + 1}", norm)
        with self.timeline.part("optimiser"):
            self.engine.update(rate)
        self.step += 1
        with self.timeline.part("communication"):
            together = self.engine.meet_if_due(self.step)
        self.tiers_due = self.clock.chosen(wish) if together else ()
        self.saver.prepare(self.engine)
        self._record_commits()
        seconds = time.perf_counter() - begun
        self.metrics |= self.report.step(self.step, total / targets, correct / targets, norm, rate, seconds)
        return together and stopping > 0

    def validate(self) -> None:
        """The mean loss over the first sequences of the validation split, shared out over the ranks."""
        self._beat("validating")
        count = min(self.config.validation.sequences, len(self.feed.held_out))
        mine = order.share(count, self.world.data_rank, self.world.data_size)
        numbers = np.arange(mine.start, mine.stop, dtype=np.uint64)
        sums = self.engine.measure(self.feed.held_out.read(numbers), numbers, count)
        targets = count * self.engine.targets_per_sample
        mean, accuracy = (total / targets for total in self.world.sum(sums.loss, sums.correct))
        finite(f"the validation loss after step {self.step}", mean)
        if not self.best or mean < self.best["validation_loss"]:
            self.best = {"validation_loss": mean, "step": self.step}
        self.metrics |= {"validation_loss": mean, "validation_accuracy": accuracy}
        self.record("validated", step=self.step, loss=mean, accuracy=accuracy)

    def commit(self, tiers: tuple[str, ...], last: bool) -> None:
        """Take a checkpoint, which is written while training goes on. What comes of it is an event in the ledger."""
        self._beat("committing")
        self.saver.save(self.engine, self._progress(), last, tiers)

    def finish_commits(self) -> None:
        """Wait for the checkpoints that are being written."""
        while self.saver.busy:
            self._beat("committing")
            self._record_commits(seconds=1.0)
        self._record_commits()

    def confirm_last_commit(self) -> None:
        """Raises OSError when the checkpoint of the step reached is not committed (a full disk)."""
        committed = fence.commits(self.store) if self.world.leads else []
        if self.world.leads and (not committed or committed[-1].step != self.step):
            raise OSError(f"the checkpoint of the last step ({self.step}) could not be committed")

    def record_end(self, outcome: str, reason: str) -> None:
        """The durable mark of an end that starting again would not change."""
        self._account.record_end(outcome, reason, self.step)

    def _record_commits(self, seconds: float = 0.0) -> None:
        for event in self.saver.events(seconds):
            self.record(**event)
            if event["event"] == "committed":
                self.clock.saved(event["blocked_seconds"], event["seconds"])

    def _beat(self, phase: str) -> None:
        self._account.beat(phase, self.step)

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
        with told_if_unwritable("ledger"):
            writer = f"profiler-{self.world.rank}"
            ledger.note(self.store, self.token, writer, event, rank=self.world.rank, **fields)

    def _progress(self) -> Progress:
        samples = self.step * self.config.batch.sequences
        return Progress(
            step=self.step,
            samples=samples,
            epoch=samples // len(self.feed.order),
            metrics=self.metrics,
            best=self.best,
            config=configuration.dump(self.config),
            lineage={
                "snapshot": self.config.snapshot,
                "tokenizer": contents.tokenizer_digest(self.feed.snapshot),
                "revision": os.environ.get("SLIPWAY_REVISION", ""),
                "torch": torch.__version__,
                "python": platform.python_version(),
                "world": self.world.size,
            },
            at=time.time(),
        )

    def _on_damaged(self, commit: fence.Commit, reason: str) -> None:
        self.record("set_aside", commit=commit.name, reason=reason)
