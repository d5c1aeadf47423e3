"""The loop: one training in one generation, from the state that it goes on from to the last step.

Read it top-down: a `Trainer` opens the data and builds the model; it restores, steps and commits.
Every number of a step depends on the configuration and the step alone, not on the number of ranks
(beyond the rounding of a sum in another order), nor on how often the training was interrupted.
"""

import functools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from slipway.trainer import lineage, validation
from slipway.trainer.base.processes import StopRequest
from slipway.trainer.base.progress import BYTE_COUNT, CopyProgress
from slipway.trainer.checkpoint.disk.progress import TrainingProgress
from slipway.trainer.checkpoint.saving.schedule import SaveSchedule, StopGrace
from slipway.trainer.checkpoint.tiers import locations
from slipway.trainer.checkpoint.tiers.node_servers import NodeServers
from slipway.trainer.checkpoint.tiers.tier import DURABLE, LASTING
from slipway.trainer.config.resolved import Config
from slipway.trainer.elastic import incident_records, skipped_batches
from slipway.trainer.elastic.batch_judge import BatchJudge, LossSpike
from slipway.trainer.elastic.hand_over import HandOver
from slipway.trainer.elastic.lookout import Lookout
from slipway.trainer.elastic.process_groups import TimeLimits
from slipway.trainer.elastic.resumption import GenerationCarryover, Resumption
from slipway.trainer.elastic.scaling import ScaleUp
from slipway.trainer.elastic.stragglers import StepPace
from slipway.trainer.loading import nodes
from slipway.trainer.loading.feed import Feed
from slipway.trainer.metrics import profiling
from slipway.trainer.metrics.report import StepReport, work
from slipway.trainer.metrics.timeline import StepTracer
from slipway.trainer.node import runtime_info
from slipway.trainer.node.world import World
from slipway.trainer.record import causes, fence, phases
from slipway.trainer.record.recorder import RankRecorder
from slipway.trainer.record.scores import Diverged
from slipway.trainer.start import initial
from slipway.trainer.step import parallel, updates
from slipway.trainer.step.engine import Engine
from slipway.trainer.step.leaving import StepLeft
from slipway.trainer.step.parallel import blocks
from slipway.trainer.step.passes import StepTotals
from slipway.trainer.step.schedule import learning_rate
from slipway.trainer.step.updates import HotUpdates


class Trainer:
    """The pieces of one incarnation on one rank."""

    def __init__(
        self,
        config: Config,
        world: World,
        token: fence.Token,
        recorder: RankRecorder,
        carryover: GenerationCarryover | None = None,
    ) -> None:
        """`carryover` is what this process has of the generation before."""
        self._carryover, self._resumed, self._leaves = carryover or GenerationCarryover(), False, False
        self.config, self.world, self.token, self.recorder = config, world, token, recorder
        self.record("met", world=world.size)
        self.store, self.durable = Path(config.placement.store), Path(config.placement.durable)
        nvme, saves = locations.nvme_folder(config.placement), config.storage.nvme.minutes > 0
        self._servers = NodeServers(world, nvme, self.store, token, saves)
        self.saver = self._carryover.saver_for(config, world, token, self._servers.ring)
        self.save_schedule, self._grace = SaveSchedule(config, world, self._servers.ring), StopGrace(self.record)
        self.tiers_due, self.together = tuple[str, ...](), True  # all ranks have the same weights
        self.step = self._reported = 0
        self._saved = self._lasting = 0  # the newest steps that are saved, and that are on a tier which outlives nodes
        self.metrics, self.best, self._figures = dict[str, float](), dict[str, float](), dict[str, float]()
        self._step_phase = phases.COMPILING if config.layout.compile else phases.TRAINING
        self._limits = TimeLimits(config.hardware, world)
        self._enter(phases.STAGING, BYTE_COUNT)
        tiers = locations.tried(config.placement, world)
        self.feed = Feed(config, world, self._record_staging)
        self.record("staging", kind=self.feed.holding.kind, why=self.feed.holding.why)
        self._enter(phases.BUILDING, BYTE_COUNT)
        self.engine = Engine(config, world, self.feed.data, self.record, draws=False)
        self._targets = config.batch.sequences * self.engine.targets_per_sample
        self._limits.watch(lambda: parallel.groups(self.engine.devices))
        self.scale_up = ScaleUp(config, world)
        self.updates = HotUpdates(config, world, token, self._follow, self.record)
        self.timeline, self._pace = self.engine.timeline, StepPace()
        self.tracer = StepTracer(self.timeline, recorder.steps_apart, recorder.record_span)
        recorder.follow(lambda: self.timeline.section)
        self.batches = BatchJudge(config.recovery, self.store, token, world.is_rank_zero, self.record)
        self.lookout = Lookout(config.recovery, self.store, token, world.is_rank_zero, self.record, self.saver)
        self.profiler = profiling.of_rank(config.observation, self.timeline, self.store, token, world.rank, recorder)
        steady = work(config, world, self.engine.flops_per_sample)
        self.report = StepReport(config, world, steady, self.timeline, recorder)
        tier_locations = {"tiers": tiers, "nvme": str(self._servers.ring), "revision": lineage.revision()}
        self.record(
            "started", incarnation=token.incarnation, **runtime_info.effective_settings(config, world), **tier_locations
        )

    def close(self) -> None:
        """End the profiler and the saver, which run beside the steps."""
        self._enter(phases.COPYING)
        self.report.close()
        for service in (self.scale_up, self.updates, self.lookout, self.tracer):
            service.close()
        self.profiler.end(self.step)
        if not self._leaves:
            self._carryover.close()
        self.feed.close()
        self._servers.close()

    def _record_staging(self, progress: CopyProgress) -> None:
        """Record how far this node's staging is, in a segment of this rank."""
        fields = {"bytes": progress.bytes, "total_bytes": progress.total_bytes, "progress": str(progress)}
        self.recorder.record_own("staging", "staged", node=nodes.name(), **fields)

    def record(self, event: str, **fields: Any) -> None:
        """Record an event in the ledger; only rank 0 writes it."""
        self.recorder.record(event, **fields)

    def due(self, every: int) -> bool:
        """Whether an action that is taken every `every` steps (0: never) is due after this step."""
        return every > 0 and self.step % every == 0

    def carry_over(self) -> None:
        """Leave the next generation of this process what it needs of this one, which is over; called before `close`."""
        self._leaves = True
        if self._resumed:
            self._carryover.hold(self.engine, self.world, self.progress(), self._figures, self._reported == self.step)

    def restore(self) -> None:
        """Continue from what ranks hold, or else from the newest good checkpoint, if there is one."""
        self._enter(phases.RESTORING, BYTE_COUNT)
        ring, on_progress = self._servers.ring, functools.partial(self._enter, phases.RESTORING, BYTE_COUNT)
        resumption = Resumption(self.config, self.world, self.token, ring, self.record, on_progress)
        resumption.remove_what_is_left()
        handed = resumption.from_ranks(self.engine, self._carryover)
        left_out = self.world.broadcast(skipped_batches.read(self.store) if self.world.is_rank_zero else {})
        self.batches.begin(left_out, ())
        restored_progress = handed or resumption.from_what_is_saved(self.engine, self.saver)
        if restored_progress is None:
            self.updates.begin(0, {})
            has_initial_weights = initial.initialize_weights(
                self.engine, self.config, self.feed, self.world, self.record
            )
            if has_initial_weights and self.config.validation.every:
                self.validate()
        else:
            progress = restored_progress.progress
            self.step, self.metrics, self.best = progress.step, dict(progress.metrics), dict(progress.best)
            self._saved = self._lasting = self.step if restored_progress.committed else 0
            self.batches.begin(
                {step: step for step in progress.skipped} | left_out, progress.losses if restored_progress.own else ()
            )
            self.updates.begin(self.step, progress.lineage, own=restored_progress.own)
        self._resumed = True
        self.feed.record_mix(self.step, self.record)
        if handed:
            self._do_what_was_due(handed)
        if restored_progress and not restored_progress.committed:
            self._commit_what_was_due()

    def _do_what_was_due(self, handed: HandOver) -> None:
        """After a step that was done in the generation before: what was due at it, where it may not have been done."""
        self._figures = dict(handed.position.figures)
        if self._figures and (0 in handed.givers or not handed.position.reported):
            self.record("step", step=self.step, **self._figures, seconds=0.0)
        self._reported = self.step
        if self.step and self.due(self.config.validation.every):
            self.validate()

    def _commit_what_was_due(self) -> None:
        """The checkpoint that was due at the step reached, where it is not on record."""
        last = self.step == self.config.run.steps
        if not self.step or not (last or self.due(self.config.checkpoint.every)):
            return
        if self.world.broadcast(
            self.world.is_rank_zero and all(c.step != self.step for c in fence.commits(self.store))
        ):
            self.commit(self.save_schedule.last_tiers() if last else (DURABLE,), last)

    def probe(self) -> None:
        """Find out whether the micro-batch fits, before a step needs it."""
        self._enter(self._step_phase)
        self.engine.probe()

    def train_step(self, stop: StopRequest | bool) -> bool:
        """Do one optimiser step over the global batch; returns whether to stop, as any rank was asked to.

        A long step is left undone when a rank is asked in the middle.
        """
        self._enter(self._step_phase, lambda: self.timeline.entered)
        with self.timeline.doing("profiling"):
            self.tracer.step_begins(self.step + 1)
            self.profiler.step_begins(self.step + 1)
        begun = time.perf_counter()
        rate = learning_rate(self.config.optimiser, self.step, self.config.run.steps)
        if self.feed.mix_changes(self.step):
            self.batches.forget_losses()
        if self.batches.leaves_out(self.step + 1):
            done, updated = StepTotals(0.0, 0.0, 0.0, self.world.all_reduce(*self._step_votes(stop))), False
        else:
            try:
                done = self._gradients(stop)
            except StepLeft as error:
                self.engine.leave_out()
                self.record("step_left", step=self.step + 1, seconds=time.perf_counter() - begun, reason=str(error))
                return True
            self.world.check_generation()
            updated = self._update(done, rate)
        self.step += 1
        self._figures = self._known(done, rate) if updated else {}
        if updated and self._step_phase is phases.COMPILING:
            self.record("compiled", **blocks.compiled_graphs(), seconds=time.perf_counter() - begun)
        self._step_phase = phases.TRAINING if updated else self._step_phase
        stopping, choice, change, self.scale_up.waiting = done.others
        with self.timeline.part("communication"):
            together = self.together = self.engine.synchronise_if_due(self.step)
            self.tiers_due = self.save_schedule.start_saves(choice) if together else ()
            saves = bool(self.tiers_due) or stopping > 0 or self.step == self.config.run.steps
            if together and self.config.observation.compares_after(self.step, saves):
                self.engine.check_copies(self.step)
        self.updates.after_step(change, self.step)
        saving = self.saver.busy
        self._record_commits()
        seconds = time.perf_counter() - begun
        self.save_schedule.add_step(seconds, saving, self.saver.size)
        if updated:
            self._report(done, rate, seconds)
        return together and stopping > 0

    def _gradients(self, stop: StopRequest | bool) -> StepTotals:
        """The gradients of the next batch, in the model; the loss and the other sums of the step, over all ranks."""
        with self.timeline.part("data"):
            rows, sample_ids = self.feed.rows(self.step)

        def gradients() -> StepTotals:
            local_sums = self.engine.accumulate(rows, sample_ids)
            return self.engine.finish(local_sums, *self._step_votes(stop))

        # What was saved on the NVMe alone cannot be saved again, and would be lost with the node.
        leaves = self.engine.can_leave and (self._lasting == self.step or self._saved < self.step)
        self.engine.leaving.begin(stop if leaves else False)
        done = self.engine.repeatable(gradients)
        self.engine.leaving.end()
        return done

    def _step_votes(self, stop: StopRequest | bool) -> tuple[float, float, float, float]:
        """What this rank sends to the others in a step: whether to stop, a checkpoint's tiers, a change, newcomers."""
        choice = self.save_schedule.choice_as_number(self.step + 1, self.saver.has_room)
        return float(bool(stop)), choice, self.updates.number(), self.scale_up.number()

    def _update(self, done: StepTotals, rate: float) -> bool:
        """Update the weights, or leave the batch out: then they are from before it, and so is every checkpoint."""
        figures = done.loss / self._targets, done.norm, self.engine.can_leave_out
        accepted = self.batches.accepts(self.step + 1, *figures)
        with self.timeline.part("optimiser"):
            if accepted:
                self.engine.update(rate)
            else:
                self.engine.leave_out()
        return accepted

    def _known(self, done: StepTotals, rate: float) -> dict[str, float]:
        """The figures of a step that all ranks know."""
        figures = {"loss": done.loss / self._targets, "accuracy": done.correct / self._targets}
        return figures | {"gradient_norm": done.norm, "learning_rate": rate}

    def _report(self, done: StepTotals, rate: float, seconds: float) -> None:
        means = done.loss / self._targets, done.correct / self._targets
        self.metrics |= self.report.step(self.step, *means, done.norm, rate, seconds)
        self._reported = self.step
        self.recorder.keep_pace(*self._pace.add(seconds, self.report.own_seconds))

    def validate(self) -> None:
        """Measure the mean loss over the first sequences of the validation split, divided between the ranks."""
        self._enter(phases.VALIDATING, lambda: self.engine.batches_measured)
        begun = time.perf_counter()
        validation_result = validation.validate(self.engine, self.feed, self.world)
        self.recorder.keep_validation(time.perf_counter() - begun)
        if not math.isfinite(mean := validation_result.loss):
            raise Diverged(self.batches.roll_back(self.step, f"the validation loss after step {self.step} is {mean}"))
        if not self.best or mean < self.best["validation_loss"]:
            self.best = {"validation_loss": mean, "step": self.step}
        self.metrics |= {"validation_loss": mean, "validation_accuracy": validation_result.accuracy}
        self.record("validated", step=self.step, **validation_result.fields())

    def commit(self, tiers: tuple[str, ...], last: bool) -> None:
        """Take a checkpoint, which is written while training goes on; success or failure is an event in the ledger."""
        if last and self.step == self._lasting and self._is_committed():
            return  # the step after it was left
        self._saved = self.step
        self._lasting = self.step if LASTING & set(tiers) else self._lasting
        self._enter(phases.SAVING, lambda: self.saver.bytes_written)
        self.saver.save(self.engine, self.progress(), last, tiers)
        self.feed.record_mix(self.step, self.record)

    def finish_commits(self) -> None:
        """Wait for the checkpoints that are being written."""
        self._enter(phases.SAVING, lambda: self.saver.bytes_written)
        while self.saver.busy:
            self._record_commits(seconds=1.0)
            self.world.check_generation()
        self._record_commits()

    def _is_committed(self) -> bool:
        """Whether the step reached, which all ranks have saved, has a commit; before the first step, nothing is due."""
        self.finish_commits()
        done = fence.committed_step(self.store) if self.world.is_rank_zero else 0
        return self.step == 0 or self.world.broadcast(done) == self.step

    def confirm_last_commit(self) -> None:
        """Raises OSError when the checkpoint of the step reached is not committed (a full disk)."""
        if self.world.is_rank_zero and fence.committed_step(self.store) != self.step:
            raise OSError(f"the checkpoint of the last step ({self.step}) could not be committed")
        if self.world.groups and self.world.groups.stays:
            self.world.all_gather(None)  # until then, what the other ranks hold may be needed

    def tell(self, error: causes.Failure) -> None:
        """Write the incident of an error that ends this start, and the exit where a new start would do as much."""
        if self.world.is_rank_zero:
            incident_records.failure(self.store, self.token, error, self.step, self.config.recovery.policies)
        if isinstance(error, Diverged | LossSpike):
            self.finish_commits()
            self.recorder.record_end("failed", error.kind, str(error), self.step)

    def _record_commits(self, seconds: float = 0.0) -> None:
        for event in self.saver.events(seconds):
            self.record(**event)
            self.lookout.saved(event)
            self.save_schedule.saved(event)
            if event["event"] == "committed":
                before = self.engine.steps_to_stop * self._pace.longest
                self._grace.saved(event["step"], event["seconds"], event["tier"], before)

    def _enter(self, phase: phases.Phase, count: Callable[[], int] | None = None) -> None:
        self.recorder.enter(phase, self.step, count)
        if not self._leaves:
            self._limits.enter(phase in (phases.TRAINING, phases.COMPILING))

    def progress(self) -> TrainingProgress:
        """Where the training is, for a checkpoint."""
        now = lineage.lineage(self.config, self.world, self.feed.snapshot, self.updates.lineage(), self.updates.before)
        done = lineage.progress(self.config, self.step, len(self.feed.order), self.metrics, self.best, now)
        return replace(done, skipped=self.batches.steps_left_out(self.step), losses=self.batches.losses)

    def _follow(self, config: Config) -> None:
        """Go on with another configuration: what a change to the running training reaches."""
        self.config = config
        updates.give(config, self.engine)
        self.feed.follow(config.run.steps)
        self.save_schedule.follow(config)
        self.report.follow(config)
        self.batches.follow(config.recovery)
        self.lookout.recovery = config.recovery
        self._limits.follow(config.hardware)
