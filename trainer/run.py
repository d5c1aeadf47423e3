"""The run: one training in one process, which may go through several generations of ranks.

If ranks are started anew after a fault, a process has one generation. If they stay, a process takes its state and the
memory of its saver into the next generation. It makes everything else anew, so that no object goes on under the token
of an older generation.

A sweep may grant a training its steps in parts (`GrantedSteps`). The ranks know from their start the last step that is
granted, so no step before it costs a collective or a look at the store. After that step, rank 0 reads the grants again
and tells the other ranks.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from slipway.trainer.base.processes import StopRequest
from slipway.trainer.checkpoint.tiers import locations
from slipway.trainer.checkpoint.tiers.tier import DURABLE
from slipway.trainer.config.resolved import Config
from slipway.trainer.elastic import drills, scaling
from slipway.trainer.elastic.generation_listener import GenerationEnded
from slipway.trainer.elastic.process_groups import next_generation
from slipway.trainer.elastic.resumption import GenerationCarryover
from slipway.trainer.loading import nodes, order
from slipway.trainer.loop import Trainer
from slipway.trainer.metrics.node_usage import NodeWatch
from slipway.trainer.node import runtime_info
from slipway.trainer.node.world import World
from slipway.trainer.record import causes, fence, grants, rank_exit
from slipway.trainer.record.grants import StepGrant
from slipway.trainer.record.recorder import BY_SIGNAL, RankRecorder, warn_if_unwritable
from slipway.trainer.step import exhaustion

ROOM_SECONDS = 60.0
"""How long ranks wait for the end of their generation, when it ends between two steps."""
LOOK_SECONDS = 0.05
"""Between two readings of the grants."""


def train(config: Config, world: World, claim: Callable[[World], fence.Token]) -> str:
    """Train to the last step, or to the step during which SIGTERM asked to stop; returns the outcome.

    "succeeded" leaves an exit record; "stopped" leaves a checkpoint of the step reached. `claim` returns the token of a
    generation. If this rank stays when a generation ends, it trains on in the next one. Raises fence.Superseded,
    Diverged (which leaves an exit record too), and ValueError for a configuration that does not fit the data.
    """
    stop = StopRequest()
    with contextlib.closing(GenerationCarryover()) as carryover:
        while True:
            with contextlib.suppress(GenerationEnded), _exchanging(world):
                return _train_in_one_generation(config, world, claim(world), stop, carryover)
            world = next_generation(world, config)
            exhaustion.give_back_memory(world.device)


class GrantedSteps:
    """The steps that one incarnation may do. All ranks call each method at the same time."""

    def __init__(self, store: Path, world: World) -> None:
        """Raises OSError, on all ranks, if the grants cannot be read."""
        self._store = store
        self._world = world
        self._grant = self._newest(0)

    def are_done(self, step: int) -> bool:
        """Whether the step after `step` is not granted. Raises OSError, on all ranks."""
        if self._grant is None or step < self._grant.until:
            return False
        self._grant = self._newest(step)
        return self._grant is not None and step >= self._grant.until

    def wait_for_more(self, step: int, stop: object) -> bool:
        """Wait as long as the grant says, or until rank 0 is asked to stop; returns whether more steps are granted."""
        self._grant = self._newest(step, may_wait=True, stop=stop)
        return self._grant is None or step < self._grant.until

    def _newest(self, step: int, may_wait: bool = False, stop: object = False) -> StepGrant | None:
        """The newest grant, on all ranks; with `may_wait`, rank 0 waits for one that goes beyond `step`."""
        newest = None
        fault = ""
        if self._world.is_rank_zero:
            begun = time.monotonic()
            try:
                newest = grants.newest(self._store)
                while may_wait and newest and _is_worth_a_wait(newest, step, begun) and not stop:
                    time.sleep(LOOK_SECONDS)
                    newest = grants.newest(self._store)
            except OSError as error:
                fault = str(error)
        newest, fault = self._world.broadcast((newest, fault))
        if fault:
            raise OSError(fault)
        return newest


def _train_in_one_generation(
    config: Config, world: World, token: fence.Token, stop: StopRequest, carryover: GenerationCarryover
) -> str:
    with (
        RankRecorder(Path(config.placement.store), token, world.rank) as recorder,
        NodeWatch(recorder, world, nodes.name(), locations.nvme_folder(config.placement).parent),
        contextlib.closing(Trainer(config, world, token, recorder, carryover)) as trainer,
    ):
        if world.is_rank_zero:
            with warn_if_unwritable("list of packages"):
                runtime_info.keep_packages(Path(config.placement.durable))
        try:
            with _exchanging(world), drills.heard(config, world, token, trainer.engine.model, recorder):
                trainer.restore()
                _record_division(trainer, config.batch.sequences)
                trainer.probe()
                trainer.feed.stage_rest(trainer.step)
                return _step_to_the_end(trainer, stop)
        except GenerationEnded:
            trainer.carry_over()
            raise
        except causes.Failure as error:
            trainer.tell(error)
            raise


def _record_division(trainer: Trainer, sequences: int) -> None:
    """Record which rank has which samples of each batch in this generation."""
    world = trainer.world
    named = zip(world.all_gather(nodes.name()), order.spans(sequences, world.mesh), strict=True)
    ranks = {str(rank): [node, *span] for rank, (node, span) in enumerate(named)}
    trainer.record("divided", step=trainer.step, sequences=sequences, ranks=ranks)


def _step_to_the_end(trainer: Trainer, stop: StopRequest) -> str:
    """Do the steps that are left, each with the validation and the checkpoint due after it; returns the outcome."""
    first = trainer.step + 1
    granted = GrantedSteps(trainer.store, trainer.world)
    while trainer.step < trainer.config.run.steps:
        if granted.are_done(trainer.step) and not _more(trainer, granted, stop):
            trainer.recorder.record_end("stopped", causes.PAUSED, f"paused after step {trainer.step}", trainer.step)
            return "stopped"
        before = trainer.step
        stop_now = bool(trainer.lookout.asks_to_stop)
        asked_to_stop = trainer.train_step(stop_now or stop)
        if trainer.step == first:
            trainer.record("stepped", step=first)
            with trainer.timeline.doing("checkpoint"):
                trainer.saver.prepare(trainer.engine)  # the optimiser has its state now
        if trainer.step > before and trainer.due(trainer.config.validation.every):
            with trainer.timeline.part("validation"):
                trainer.validate()
        last = asked_to_stop or trainer.step == trainer.config.run.steps
        tiers = trainer.save_schedule.last_tiers() if last else trainer.tiers_due
        if tiers:
            with trainer.timeline.part("checkpoint"):
                trainer.commit(tiers, last)
        elif trainer.together and trainer.due(trainer.config.storage.memory_steps):
            with trainer.timeline.part("checkpoint"):
                trainer.saver.hold(trainer.engine, trainer.progress())
        if trainer.scale_up.waiting and trainer.together and not last:
            _make_room(trainer)
        if asked_to_stop and trainer.step < trainer.config.run.steps:
            trainer.finish_commits()
            lookout_stops = bool(trainer.lookout.asks_to_stop)
            leaving = scaling.leaving_nodes(trainer.world, nodes.name(), lambda: bool(stop), lookout_stops)
            if leaving:
                _let_go(trainer, leaving)
            trainer.recorder.record_stop(trainer.step, BY_SIGNAL if stop else trainer.lookout.asks_to_stop)
            return "stopped"
    trainer.finish_commits()
    trainer.confirm_last_commit()
    trainer.recorder.record_end("succeeded", causes.DONE, "all steps done", trainer.step)
    return "succeeded"


def _make_room(trainer: Trainer) -> None:
    """End the generation after this step, so that the next one begins with the nodes that wait; does not return.

    Pending saves end first, and the memory of the nodes gets the state, for ranks that cannot get it from one that
    stays. Raises GenerationEnded if ranks stay; otherwise their supervisor ends them.
    """
    trainer.finish_commits()
    trainer.saver.hold(trainer.engine, trainer.progress(), lasting=True)
    why = {"kind": causes.GROWN, "reason": trainer.scale_up.reason(trainer.step)}
    _end_generation(trainer, why, lambda: trainer.scale_up.admit(trainer.step))


def _let_go(trainer: Trainer, leaving: tuple[str, ...]) -> None:
    """End the generation after this step, so that the next one begins without these nodes; does not return.

    The checkpoint of the step is committed already. Raises GenerationEnded if ranks stay; otherwise their supervisor
    ends them.
    """
    why = {"kind": causes.STOP_REQUESTED, "reason": scaling.leave_reason(leaving, trainer.step)}
    stays = trainer.world.groups is not None and trainer.world.groups.stays
    _end_generation(trainer, why, lambda: scaling.let_go(leaving, nodes.name(), trainer.step, stays))


def _end_generation(trainer: Trainer, why: dict[str, str], announce: Callable[[], None]) -> None:
    """End the generation of all ranks, between two steps; does not return. Rank 0 calls `announce`.

    Raises GenerationEnded if ranks stay; otherwise their supervisor ends them.
    """
    if trainer.world.is_rank_zero:
        trainer.recorder.record_own("between-steps", "detected", **why)
    trainer.recorder.flush()
    trainer.world.all_gather(None)
    if trainer.world.is_rank_zero:
        announce()
    if trainer.world.groups and trainer.world.groups.stays:
        trainer.world.groups.leave_generation(ROOM_SECONDS)
    time.sleep(ROOM_SECONDS)
    raise RuntimeError(f"the generation was to end after step {trainer.step}, and has not ended")


def _more(trainer: Trainer, granted: GrantedSteps, stop: StopRequest) -> bool:
    """Commit the step reached and wait for another grant; returns whether there is one. Raises OSError."""
    with trainer.timeline.part("checkpoint"):
        trainer.commit((DURABLE,), last=True)
        trainer.finish_commits()
    trainer.confirm_last_commit()
    return granted.wait_for_more(trainer.step, stop)


def _exchanging(world: World) -> contextlib.AbstractContextManager[None]:
    """The context of work with collectives: raises GenerationEnded if a rank is lost and this one stays."""
    if world.groups is None:
        return contextlib.nullcontext()
    return world.groups.exchanging(lambda error: rank_exit.kind_of(error) == causes.NETWORK)


def _is_worth_a_wait(newest: StepGrant, step: int, begun: float) -> bool:
    """Whether ranks that have waited since `begun` go on waiting: no more is granted, and the wait is not over."""
    return newest.until <= step and time.monotonic() - begun < newest.wait_seconds
