"""The loop: one training in one generation, from the state that it goes on from to the last step.

Read it top-down: a `Trainer` opens the data and builds the model; it restores, steps and commits.
Every number of a step depends on the configuration and the step alone, not on the number of ranks
(beyond the rounding of a sum in another order), nor on how often the training was interrupted.
"""

import functools
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainer.base.processes import StopRequest
from trainer.base.progress import MOVED, CopyProgress
from trainer.checkpoint.disk.progress import TrainingProgress
from trainer.checkpoint.saving.saver import Saver
from trainer.checkpoint.saving.schedule import SaveSchedule
from trainer.checkpoint.tiers import locations
from trainer.checkpoint.tiers.locations import nvme_folder
from trainer.checkpoint.tiers.node_servers import NodeServers
from trainer.checkpoint.tiers.tier import DURABLE
from trainer.config import resolved as configuration
from trainer.config.resolved import Config
from trainer.data import contents
from trainer.figures.profiling import Profiler
from trainer.figures.report import StepReport, work
from trainer.loading import nodes, order
from trainer.loading.feed import Feed
from trainer.node import affinity, fabric, settings
from trainer.node.limits import TimeLimits
from trainer.node.world import World
from trainer.record import causes, fence, files, phases
from trainer.record.phases import Phase
from trainer.record.recorder import RankRecorder
from trainer.record.scores import require_finite
from trainer.resumption import Kept, Resumption
from trainer.start import initial
from trainer.step import compiler, handover, parallel
from trainer.step.engine import Engine
from trainer.step.handover import HeldState, Position
from trainer.step.passes import StepTotals
from trainer.step.schedule import learning_rate


def step_to_the_end(config: Config, trainer: "Trainer", stop: StopRequest) -> str:
    """Do the steps that are left; returns the outcome."""
    first = trainer.step + 1
    while trainer.step < config.run.steps:
        asked_to_stop = trainer.train_step(bool(stop))
        if trainer.step == first:
            trainer.record("stepped", step=first)
        if trainer.due(config.validation.every):
            with trainer.timeline.part("validation"):
                trainer.validate()
        last = asked_to_stop or trainer.step == config.run.steps
        if tiers := trainer.save_schedule.last_tiers() if last else trainer.tiers_due:
            with trainer.timeline.part("checkpoint"):
                trainer.commit(tiers, last)
        if asked_to_stop and trainer.step < config.run.steps:
            trainer.finish_commits()
            trainer.record_stop(bool(stop))
            return "stopped"
    trainer.finish_commits()
    trainer.confirm_last_commit()
    trainer.record_end("succeeded", causes.DONE, "all steps done")
    return "succeeded"


class Trainer:
    """The pieces of one incarnation on one rank."""

    def __init__(
        self, config: Config, world: World, token: fence.Token, recorder: RankRecorder, kept: Kept | None = None
    ) -> None:
        """`kept` is what this process has of the generation before."""
        self._kept, self._resumed, self._leaves = kept or Kept(), False, False
        self.config, self.world, self.token, self._recorder = config, world, token, recorder
        self.record("met", world=world.size)
        self.store, self.durable = Path(config.placement.store), Path(config.placement.durable)
        nvme, saves = nvme_folder(config.placement), config.storage.nvme.minutes > 0
        self._servers = NodeServers(world, nvme, self.store, token, saves)
        self.saver = self._saver()
        self.save_schedule = SaveSchedule(config, world, self._servers.ring)
        self.tiers_due: tuple[str, ...] = ()
        self.step = self._reported = 0
        self.metrics: dict[str, float] = {}
        self.best: dict[str, float] = {}
        self._figures: dict[str, float] = {}
        self._step_phase = phases.COMPILING if config.layout.compile else phases.TRAINING
        self._limits = TimeLimits(config.hardware, world)
        self._enter(phases.STAGING, MOVED)
        tiers = locations.tried(config.placement, world)
        self.feed = Feed(config, world, self._record_staging)
        self.record("staging", kind=self.feed.holding.kind, why=self.feed.holding.why)
        self._enter(phases.BUILDING, MOVED)
        self.engine = Engine(config, world, self.feed.data, self.record, draws=False)
        self._limits.watch(lambda: parallel.groups(self.engine.devices))
        self.timeline = self.engine.timeline
        self.profiler = self._profiler()
        steady = work(config, world, self.engine.flops_per_sample)
        self.report = StepReport(config, world, steady, self.timeline, self.record)
        self.record(
            "started",
            world=world.size,
            device=str(world.device),
            torch=torch.__version__,
            **self._hardware(),
            tiers=tiers,
            nvme=str(self._servers.ring),
        )

    def close(self) -> None:
        """End the profiler and the saver, which run beside the steps."""
        self._enter(phases.COPYING)
        self.profiler.end(self.step)
        if not self._leaves:
            self.saver.close()
            self._kept.saver = None
        self.feed.close()
        self._servers.close()

    def keep(self, kept: Kept) -> None:
        """Leave what the next generation of this process needs; to close this trainer leaves the saver as it is."""
        self._leaves = True
        if self._resumed:
            state = self.engine.whole_state()
            reported = self._reported == self.step
            position = Position(self.step, self.metrics, self.best, self._figures, reported)
            kept.held = HeldState(position, handover.part(self.world.rank, self.world.mesh), state) if state else None

    def _saver(self) -> Saver:
        """The saver of the generation before, where this process has one."""
        kept = self._kept
        if kept.saver is None:
            config, ring = self.config, self._servers.ring
            kept.saver = Saver(config.training, config.placement, self.world, self.token, config.storage, ring)
        else:
            kept.saver.follow(self.token, self._servers.ring, self.world)
        return kept.saver

    def _record_staging(self, progress: CopyProgress) -> None:
        """Record how far this node's staging is, in a segment of this rank."""
        fields = {"bytes": progress.bytes, "total_bytes": progress.total_bytes, "progress": str(progress)}
        self._recorder.record_own("staging", "staged", node=nodes.name(), **fields)

    def record(self, event: str, **fields: Any) -> None:
        """Record an event in the ledger; only rank 0 writes it."""
        self._recorder.record(event, **fields)

    def due(self, every: int) -> bool:
        """Whether an action that is taken every `every` steps (0: never) is due after this step."""
        return every > 0 and self.step % every == 0

    def restore(self) -> None:
        """Continue from what ranks hold, or else from the newest good checkpoint, if there is one."""
        self._enter(phases.RESTORING, MOVED)
        wait = functools.partial(self._enter, phases.RESTORING, MOVED)
        resumption = Resumption(self.config, self.world, self.token, self._servers.ring, self.record, wait)
        resumption.remove_what_is_left()
        if found := resumption.from_ranks(self.engine, self._kept):
            self._go_on_after(found.position, has_new_leader=0 in found.givers)
        elif progress := resumption.from_checkpoint(self.engine, self.saver):
            self.step, self.metrics, self.best = progress.step, progress.metrics, progress.best
        else:
            self._start_from_initial_weights()
        self._resumed = True

    def _go_on_after(self, position: Position, has_new_leader: bool) -> None:
        """Go on after a step that was done; what else was due at it is done now, where it had not been."""
        self.step = position.step
        self.metrics, self.best, self._figures = dict(position.metrics), dict(position.best), dict(position.figures)
        self._resumed = True
        if self._figures and (has_new_leader or not position.reported):
            self.record("step", step=self.step, **self._figures, seconds=0.0)
        self._reported = self.step
        if self.step and self.due(self.config.validation.every):
            self.validate()
        last = self.step == self.config.run.steps
        if self.step and (last or self.due(self.config.checkpoint.every)) and self._lacks_commit():
            self.commit(self.save_schedule.last_tiers() if last else (DURABLE,), last)

    def _lacks_commit(self) -> bool:
        """Whether the checkpoint of this step is not on record."""
        steps = [commit.step for commit in fence.commits(self.store)] if self.world.leads else []
        return self.world.from_leader(self.step not in steps)

    def probe(self) -> None:
        """Find out whether the micro-batch fits, before a step needs it."""
        self._enter(self._step_phase)
        self.engine.probe()

    def _start_from_initial_weights(self) -> None:
        """Load the weights that the configuration names, and validate them before the first step; else draw them."""
        begun = time.time()
        if self.config.init is None:
            elements = self.engine.draw_weights()
            self.record("drawn", elements=elements, seconds=time.time() - begun)
            return
        folder = Path(self.config.placement.init)
        tokenizer = contents.tokenizer(self.feed.snapshot)
        source = initial.source(self.config.init, folder, self.config.model, tokenizer, self.feed.data, self.world)
        self.engine.load_weights(source)
        self.record("initialised", digest=self.config.init.digest, folder=str(folder), seconds=time.time() - begun)
        if self.config.validation.every:
            self.validate()

    def train_step(self, stop: bool) -> bool:
        """Do one optimiser step over the global batch; returns whether to stop, as any rank was asked to."""
        self._enter(self._step_phase)
        self.profiler.step_begins(self.step + 1)
        begun = time.perf_counter()
        with self.timeline.part("data"):
            rows, places = self.feed.rows(self.step)
        rate = learning_rate(self.config.optimiser, self.step, self.config.run.steps)

        def gradients() -> StepTotals:
            mine = self.engine.accumulate(rows, places)
            choice = self.save_schedule.choice_as_number(self.step + 1, self.saver.has_room)
            return self.engine.finish(mine, float(stop), choice)

        done = self.engine.repeatable(gradients)
        self.world.check_generation()
        total, correct, norm, (stopping, choice) = done.loss, done.correct, done.norm, done.others
        targets = self.config.batch.sequences * self.engine.targets_per_sample
        # Checked before the update: the weights, and so every checkpoint, are from before the step that diverged.
        require_finite(f"the loss of step {self.step + 1}", total)
        require_finite(f"the gradient norm of step {self.step + 1}", norm)
        with self.timeline.part("optimiser"):
            self.engine.update(rate)
        self.step += 1
        self._figures = {"loss": total / targets, "accuracy": correct / targets, "gradient_norm": norm}
        self._figures |= {"learning_rate": rate}
        if self._step_phase is phases.COMPILING:
            self.record("compiled", **compiler.graphs(), seconds=time.perf_counter() - begun)
        self._step_phase = phases.TRAINING
        with self.timeline.part("communication"):
            together = self.engine.synchronise_if_due(self.step)
            if together and self.due(self.config.observation.compare_steps):
                self.engine.check_copies(self.step)
        self.tiers_due = self.save_schedule.start_saves(choice) if together else ()
        self.saver.prepare(self.engine)
        saving = self.saver.busy
        self._record_commits()
        seconds = time.perf_counter() - begun
        self.save_schedule.add_step(seconds, saving, self.saver.size)
        self.metrics |= self.report.step(self.step, total / targets, correct / targets, norm, rate, seconds)
        self._reported = self.step
        return together and stopping > 0

    def validate(self) -> None:
        """Measure the mean loss over the first sequences of the validation split, divided between the ranks."""
        self._enter(phases.VALIDATING, lambda: self.engine.batches_measured)
        count = min(self.config.validation.sequences, len(self.feed.held_out))
        mine = order.rank_slice(count, self.world.data_rank, self.world.data_size)
        numbers = np.arange(mine.start, mine.stop, dtype=np.uint64)
        sums = self.engine.measure(self.feed.held_out.read(numbers), numbers, count)
        targets = count * self.engine.targets_per_sample
        mean, accuracy = (total / targets for total in self.world.sum(sums.losses, sums.hits))
        require_finite(f"the validation loss after step {self.step}", mean)
        if not self.best or mean < self.best["validation_loss"]:
            self.best = {"validation_loss": mean, "step": self.step}
        self.metrics |= {"validation_loss": mean, "validation_accuracy": accuracy}
        self.record("validated", step=self.step, loss=mean, accuracy=accuracy)

    def commit(self, tiers: tuple[str, ...], last: bool) -> None:
        """Take a checkpoint, which is written while training goes on; success or failure is an event in the ledger."""
        self._enter(phases.SAVING, lambda: self.saver.bytes_written)
        self.saver.save(self.engine, self._progress(), last, tiers)

    def finish_commits(self) -> None:
        """Wait for the checkpoints that are being written."""
        self._enter(phases.SAVING, lambda: self.saver.bytes_written)
        while self.saver.busy:
            self._record_commits(seconds=1.0)
            self.world.check_generation()
        self._record_commits()

    def confirm_last_commit(self) -> None:
        """Raises OSError when the checkpoint of the step reached is not committed (a full disk).

        Ranks that stay wait for it: until then, what they hold may be needed.
        """
        committed = fence.commits(self.store) if self.world.leads else []
        if self.world.leads and (not committed or committed[-1].step != self.step):
            raise OSError(f"the checkpoint of the last step ({self.step}) could not be committed")
        if self.world.groups and self.world.groups.stays:
            self.world.gather(None)

    def record_stop(self, asked: bool) -> None:
        """Record that the training stopped before its end; `asked` says whether this rank was asked to stop."""
        self._recorder.record_stop(self.step, asked)

    def record_end(self, outcome: str, kind: str, reason: str) -> None:
        """Record an outcome that a new start would not change."""
        self._recorder.record_end(outcome, kind, reason, self.step)

    def _record_commits(self, seconds: float = 0.0) -> None:
        for event in self.saver.events(seconds):
            self.record(**event)
            if event["event"] == "committed":
                self.save_schedule.add_measurement(event["blocked_seconds"], event["seconds"])
            else:
                self.save_schedule.add_failure(event["blocked_seconds"], event["tier"])

    def _enter(self, phase: Phase, count: Callable[[], int] | None = None) -> None:
        self._recorder.enter(phase, self.step, count)
        if not self._leaves:
            self._limits.enter(phase in (phases.TRAINING, phases.COMPILING))

    def _hardware(self) -> dict[str, Any]:
        """The settings in force on this rank, with the source of each, and the processors that it may use."""
        network, runtime = fabric.in_force(self.config.hardware, os.environ), settings.in_force(self.config, os.environ)
        return {"settings": network, "runtime": runtime, "processors": affinity.cpu_list(os.sched_getaffinity(0))}

    def _profiler(self) -> Profiler:
        """Rank 0 profiles the steps that the recipe names; any rank, the steps after a signal."""
        name, folder = f"{self.token}.{self.world.rank:05d}", self.store / files.PROFILES
        return Profiler(self.config.observation, self.timeline, folder, name, self.world.leads, self._record_own)

    def _record_own(self, event: str, **fields: Any) -> None:
        """Record an event of this rank in a ledger segment of its own."""
        self._recorder.record_own("profiler", event, **fields)

    def _progress(self) -> TrainingProgress:
        samples = self.step * self.config.batch.sequences
        return TrainingProgress(
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
