"""The loop: one training in one generation, from the state that it continues to the last step.

Read it top-down: a `Trainer` opens the data and builds the model; it restores, steps, validates and commits. A step is
`Trainer.train_step`; `slipway.trainer.run` calls it until all steps are done. Every number of a step depends on the
configuration and the step alone: neither on the number of ranks (beyond the rounding of a sum in another order), nor on
how often the training was interrupted.
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
from slipway.trainer.step import hot_updates, parallel
from slipway.trainer.step.engine import Engine
from slipway.trainer.step.hot_updates import HotUpdates
from slipway.trainer.step.leaving import StepLeft
from slipway.trainer.step.parallel import blocks
from slipway.trainer.step.passes import StepTotals
from slipway.trainer.step.schedule import learning_rate


class Trainer:
    """One training on one rank, in one generation: it restores the state, steps, validates, and commits checkpoints.

    The step is `train_step`: the forward and backward passes of the rank's micro-batches, the sums over all ranks, and
    the optimiser's step.
    """

    def __init__(
        self,
        config: Config,
        world: World,
        token: fence.Token,
        recorder: RankRecorder,
        carryover: GenerationCarryover | None = None,
    ) -> None:
        """`carryover` is what this process has kept from the generation before."""
        # What this rank trains, and with whom.
        self.config = config
        self.world = world
        self.token = token
        self.store = Path(config.placement.store)

        # What it records.
        self.recorder = recorder
        self.record("met", world=world.size)

        # Where the training is: steps done, and the figures that go into checkpoints and the ledger.
        self.step = 0
        self.metrics: dict[str, float] = {}
        self.best: dict[str, float] = {}
        self.together = True
        """Whether all ranks have the same weights; between two synchronisations of local updates they have not."""
        self._figures: dict[str, float] = {}
        """Those of the newest step; empty if its batch was skipped."""
        self._reported = 0
        """The newest step that is in the ledger."""
        self._step_phase = phases.COMPILING if config.layout.compile else phases.TRAINING

        # What this generation inherits, and what it leaves to the next one.
        self._carryover = carryover or GenerationCarryover()
        self._resumed = False
        """Whether `restore` has succeeded, so that there is a state to leave."""
        self._leaves = False
        """Whether the process stays and goes on in the next generation."""

        # Checkpoints.
        nvme = locations.nvme_folder(config.placement)
        self._servers = NodeServers(world, nvme, self.store, token, config.storage.nvme.minutes > 0)
        self.saver = self._carryover.saver_for(config, world, token, self._servers.ring)
        self.save_schedule = SaveSchedule(config, world, self._servers.ring)
        self.tiers_due: tuple[str, ...] = ()
        """The tiers that the checkpoint of the newest step goes to."""
        self._grace = StopGrace(self.record)
        self._saved = 0
        """The newest step of which a checkpoint was begun, on any tier."""
        self._lasting = 0
        """The newest step of which a checkpoint was begun on a tier that outlives nodes."""

        # The data.
        self._limits = TimeLimits(config.hardware, world)
        self._enter(phases.STAGING, BYTE_COUNT)
        tiers = locations.tried(config.placement, world)
        self.feed = Feed(config, world, self._record_staging)
        self.record("staging", kind=self.feed.holding.kind, why=self.feed.holding.why)

        # The model with its optimiser, laid over the ranks.
        self._enter(phases.BUILDING, BYTE_COUNT)
        self.engine = Engine(config, world, self.feed.data, self.record, draws=False)
        self._targets = config.batch.sequences * self.engine.targets_per_sample
        """Targets in a global batch: the divisor of a step's summed loss."""
        self._limits.watch(lambda: parallel.groups(self.engine.devices))

        # What may change the run: nodes that join, hot updates, skipped batches, advice to stop.
        self.scale_up = ScaleUp(config, world)
        self.updates = HotUpdates(config, world, token, self._follow, self.record)
        self.batches = BatchJudge(config.recovery, self.store, token, world.is_rank_zero, self.record)
        self.lookout = Lookout(config.recovery, self.store, token, world.is_rank_zero, self.record, self.saver)

        # What measures the steps.
        self.timeline = self.engine.timeline
        self._pace = StepPace()
        self.tracer = StepTracer(self.timeline, recorder.steps_apart, recorder.record_span)
        recorder.follow(lambda: self.timeline.section)
        self.profiler = profiling.of_rank(config.observation, self.timeline, self.store, token, world.rank, recorder)
        steady = work(config, world, self.engine.flops_per_sample)
        self.report = StepReport(config, world, steady, self.timeline, recorder)

        tier_locations = {"tiers": tiers, "nvme": str(self._servers.ring), "revision": lineage.revision()}
        self.record(
            "started", incarnation=token.incarnation, **runtime_info.effective_settings(config, world), **tier_locations
        )

    def close(self) -> None:
        """End all that runs beside the steps; the saver goes on where the next generation takes it over."""
        self._enter(phases.COPYING)
        self.report.close()
        for service in (self.scale_up, self.updates, self.lookout, self.tracer):
            service.close()
        self.profiler.end(self.step)
        if not self._leaves:
            self._carryover.close()
        self.feed.close()
        self._servers.close()

    def carry_over(self) -> None:
        """Keep what the next generation in this process reuses. Called before `close`, when this one has ended."""
        self._leaves = True
        if self._resumed:
            self._carryover.hold(self.engine, self.world, self.progress(), self._figures, self._reported == self.step)

    # The state that the steps begin with.

    def restore(self) -> None:
        """Continue from the state that ranks still hold, else from the newest good checkpoint, else from the start."""
        self._enter(phases.RESTORING, BYTE_COUNT)
        ring = self._servers.ring
        on_progress = functools.partial(self._enter, phases.RESTORING, BYTE_COUNT)
        resumption = Resumption(self.config, self.world, self.token, ring, self.record, on_progress)
        resumption.remove_what_is_left()
        handed = resumption.from_ranks(self.engine, self._carryover)
        left_out = self.world.broadcast(skipped_batches.read(self.store) if self.world.is_rank_zero else {})
        self.batches.begin(left_out, ())
        restored = handed or resumption.from_what_is_saved(self.engine, self.saver)
        if restored is None:
            self._begin_with_initial_weights()
        else:
            progress = restored.progress
            self.step = progress.step
            self.metrics = dict(progress.metrics)
            self.best = dict(progress.best)
            self._saved = self._lasting = self.step if restored.committed else 0
            skipped = {step: step for step in progress.skipped} | left_out
            self.batches.begin(skipped, progress.losses if restored.own else ())
            self.updates.begin(self.step, progress.lineage, own=restored.own)
        self._resumed = True
        self.feed.record_mix(self.step, self.record)
        if handed:
            self._do_what_was_due(handed)
        if restored and not restored.committed:
            self._commit_what_was_due()

    def _begin_with_initial_weights(self) -> None:
        """Draw the weights, or load the ones that the recipe names; the loss of the latter is measured first."""
        self.updates.begin(0, {})
        loaded = initial.initialize_weights(self.engine, self.config, self.feed, self.world, self.record)
        if loaded and self.config.validation.every:
            self.validate()

    def _do_what_was_due(self, handed: HandOver) -> None:
        """Report and validate a step of the generation before, which may have ended before it did so."""
        self._figures = dict(handed.position.figures)
        if self._figures and (0 in handed.givers or not handed.position.reported):
            self.record("step", step=self.step, **self._figures, seconds=0.0)
        self._reported = self.step
        if self.step and self.due(self.config.validation.every):
            self.validate()

    def _commit_what_was_due(self) -> None:
        """Commit the checkpoint that was due at the current step, unless it is on record."""
        last = self.step == self.config.run.steps
        if not self.step or not (last or self.due(self.config.checkpoint.every)):
            return
        is_missing = self.world.is_rank_zero and all(commit.step != self.step for commit in fence.commits(self.store))
        if self.world.broadcast(is_missing):
            self.commit(self.save_schedule.last_tiers() if last else (DURABLE,), last)

    def probe(self) -> None:
        """Find out whether the micro-batch fits, before a step needs it."""
        self._enter(self._step_phase)
        self.engine.probe()

    # The step.

    def train_step(self, stop: StopRequest | bool) -> bool:
        """Do one optimiser step over the global batch; returns whether to stop, because some rank was asked to.

        A long step that is asked to stop in the middle is abandoned: the weights are those before it.
        """
        self._enter(self._step_phase, lambda: self.timeline.entered)
        with self.timeline.doing("profiling"):
            self.tracer.step_begins(self.step + 1)
            self.profiler.step_begins(self.step + 1)
        begun = time.perf_counter()
        rate = learning_rate(self.config.optimizer, self.step, self.config.run.steps)
        if self.feed.mix_changes(self.step):
            self.batches.forget_losses()
        if self.batches.leaves_out(self.step + 1):
            # The ranks still exchange their votes, so that they agree on what follows the step.
            totals = StepTotals(0.0, 0.0, 0.0, self.world.all_reduce(*self._step_votes(stop)))
            updated = False
        else:
            try:
                totals = self._forward_backward(stop)
            except StepLeft as error:
                self.engine.leave_out()
                self.record("step_left", step=self.step + 1, seconds=time.perf_counter() - begun, reason=str(error))
                return True
            self.world.check_generation()
            updated = self._update(totals, rate)
        self.step += 1
        self._figures = self._figures_of(totals, rate) if updated else {}
        if updated:
            if self._step_phase is phases.COMPILING:
                self.record("compiled", **blocks.compiled_graphs(), seconds=time.perf_counter() - begun)
            self._step_phase = phases.TRAINING
        stopping, tiers_choice, change, self.scale_up.waiting = totals.others
        with self.timeline.part("communication"):
            self.together = self.engine.synchronize_if_due(self.step)
            self.tiers_due = self.save_schedule.start_saves(tiers_choice) if self.together else ()
            saves = bool(self.tiers_due) or stopping > 0 or self.step == self.config.run.steps
            if self.together and self.config.observation.compares_after(self.step, saves):
                self.engine.check_copies(self.step)
        self.updates.after_step(change, self.step)
        saving = self.saver.busy
        self._record_commits()
        seconds = time.perf_counter() - begun
        self.save_schedule.add_step(seconds, saving, self.saver.size)
        if updated:
            self._report(totals, rate, seconds)
        return self.together and stopping > 0

    def _forward_backward(self, stop: StopRequest | bool) -> StepTotals:
        """Leave the gradients of the next batch, clipped, in the model; returns the step's sums over all ranks.

        `Engine.accumulate` does the forward and backward pass of one micro-batch after the other (`Passes.train`).
        `Engine.finish` sums the loss and the votes over the ranks, and clips the gradients. All ranks repeat both with
        smaller micro-batches when memory runs out on one of them. Raises StepLeft.
        """
        with self.timeline.part("data"):
            rows, sample_ids = self.feed.rows(self.step)

        def forward_backward() -> StepTotals:
            sums = self.engine.accumulate(rows, sample_ids)
            return self.engine.finish(sums, *self._step_votes(stop))

        # A state that is saved on the NVMe alone cannot be saved again on a tier that outlives the node. So the step
        # that follows it is never abandoned.
        can_leave = self.engine.can_leave and (self._lasting == self.step or self._saved < self.step)
        self.engine.leaving.begin(stop if can_leave else False)
        totals = self.engine.repeatable(forward_backward)
        self.engine.leaving.end()
        return totals

    def _update(self, totals: StepTotals, rate: float) -> bool:
        """Take the optimiser's step, or skip the batch and keep the weights; returns whether the weights changed."""
        loss = totals.loss / self._targets
        accepted = self.batches.accepts(self.step + 1, loss, totals.norm, self.engine.can_leave_out)
        with self.timeline.part("optimizer"):
            if accepted:
                self.engine.update(rate)
            else:
                self.engine.leave_out()
        return accepted

    def _step_votes(self, stop: StopRequest | bool) -> tuple[float, float, float, float]:
        """What the ranks sum with the loss of a step, so that all act alike after it.

        Whether to stop; the tiers of a checkpoint; the number of a hot update; the number of nodes that wait to join.
        """
        tiers_choice = self.save_schedule.choice_as_number(self.step + 1, self.saver.has_room)
        return float(bool(stop)), tiers_choice, self.updates.number(), self.scale_up.number()

    def _figures_of(self, totals: StepTotals, rate: float) -> dict[str, float]:
        """The figures of a step that all ranks know."""
        return {
            "loss": totals.loss / self._targets,
            "accuracy": totals.correct / self._targets,
            "gradient_norm": totals.norm,
            "learning_rate": rate,
        }

    def _report(self, totals: StepTotals, rate: float, seconds: float) -> None:
        loss = totals.loss / self._targets
        accuracy = totals.correct / self._targets
        self.metrics |= self.report.step(self.step, loss, accuracy, totals.norm, rate, seconds)
        self._reported = self.step
        self.recorder.keep_pace(*self._pace.add(seconds, self.report.own_seconds))

    def validate(self) -> None:
        """Measure the mean loss over the first sequences of the validation split, divided between the ranks.

        Raises Diverged when it is not finite.
        """
        self._enter(phases.VALIDATING, lambda: self.engine.batches_measured)
        begun = time.perf_counter()
        result = validation.validate(self.engine, self.feed, self.world)
        self.recorder.keep_validation(time.perf_counter() - begun)
        mean = result.loss
        if not math.isfinite(mean):
            raise Diverged(self.batches.roll_back(self.step, f"the validation loss after step {self.step} is {mean}"))
        if not self.best or mean < self.best["validation_loss"]:
            self.best = {"validation_loss": mean, "step": self.step}
        self.metrics |= {"validation_loss": mean, "validation_accuracy": result.accuracy}
        self.record("validated", step=self.step, **result.fields())

    # Checkpoints.

    def commit(self, tiers: tuple[str, ...], last: bool) -> None:
        """Take a checkpoint, which is written while training goes on; the ledger tells whether it succeeded."""
        if last and self.step == self._lasting and self._is_committed():
            return  # the step that follows was abandoned, so this step's checkpoint is there already
        self._saved = self.step
        if LASTING & set(tiers):
            self._lasting = self.step
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
        """Whether the checkpoint of this step, which all ranks have saved, has a commit; step 0 needs none."""
        self.finish_commits()
        committed_step = fence.committed_step(self.store) if self.world.is_rank_zero else 0
        return self.step == 0 or self.world.broadcast(committed_step) == self.step

    def confirm_last_commit(self) -> None:
        """Raises OSError when the checkpoint of this step is not committed, as on a full disk."""
        if self.world.is_rank_zero and fence.committed_step(self.store) != self.step:
            raise OSError(f"the checkpoint of the last step ({self.step}) could not be committed")
        if self.world.groups and self.world.groups.stays:
            self.world.all_gather(None)  # until all have come here, a rank may need what the others hold

    def _record_commits(self, seconds: float = 0.0) -> None:
        """Record the saver's events, of which it waits at most `seconds` for the first."""
        for event in self.saver.events(seconds):
            self.record(**event)
            self.lookout.saved(event)
            self.save_schedule.saved(event)
            if event["event"] == "committed":
                before = self.engine.steps_to_stop * self._pace.longest
                self._grace.saved(event["step"], event["seconds"], event["tier"], before)

    def progress(self) -> TrainingProgress:
        """The position of the training, for a checkpoint."""
        now = lineage.lineage(self.config, self.world, self.feed.snapshot, self.updates.lineage(), self.updates.before)
        progress = lineage.progress(self.config, self.step, len(self.feed.order), self.metrics, self.best, now)
        return replace(progress, skipped=self.batches.steps_left_out(self.step), losses=self.batches.losses)

    # Records, deadlines and changes of the configuration.

    def record(self, event: str, **fields: Any) -> None:
        """Record an event in the ledger; only rank 0 writes it."""
        self.recorder.record(event, **fields)

    def tell(self, error: causes.Failure) -> None:
        """Record the incident of an error that ends this start, and the exit if a new start would end in the same."""
        if self.world.is_rank_zero:
            incident_records.failure(self.store, self.token, error, self.step, self.config.recovery.policies)
        if isinstance(error, Diverged | LossSpike):
            self.finish_commits()
            self.recorder.record_end("failed", error.kind, str(error), self.step)

    def due(self, every: int) -> bool:
        """Whether an action that is taken every `every` steps (0: never) is due after this step."""
        return every > 0 and self.step % every == 0

    def _record_staging(self, progress: CopyProgress) -> None:
        """Record how much this node has staged, in a ledger segment of this rank."""
        fields = {"bytes": progress.bytes, "total_bytes": progress.total_bytes, "progress": str(progress)}
        self.recorder.record_own("staging", "staged", node=nodes.name(), **fields)

    def _enter(self, phase: phases.Phase, count: Callable[[], int] | None = None) -> None:
        """Enter a phase; `count` tells how far it is, in the phase's own unit."""
        self.recorder.enter(phase, self.step, count)
        if not self._leaves:
            self._limits.enter(phase in (phases.TRAINING, phases.COMPILING))

    def _follow(self, config: Config) -> None:
        """Go on with the configuration that a hot update gives."""
        self.config = config
        hot_updates.give(config, self.engine)
        self.feed.follow(config.run.steps)
        self.save_schedule.follow(config)
        self.report.follow(config)
        self.batches.follow(config.recovery)
        self.lookout.recovery = config.recovery
        self._limits.follow(config.hardware)
