"""The run: one training in one process, which may go through several generations of ranks.

Where ranks are started anew after a fault, a process has one generation. Where it stays, it takes its state, and the
memory of its saver, into the next one; everything else that belongs to a generation's token is made anew, so that no
part of it can go on under an older one.

A training that is given its steps a part at a time goes as far as it may, and no further (`GrantedSteps`). The ranks
know the last step that is granted from their start on, so that no step before it costs an exchange or a look at the
store. After that step rank 0 looks again, and tells the others.
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
"""How long ranks wait to be ended, or to hear of the end, when their generation ends between two steps."""
LOOK_SECONDS = 0.05
"""Between two looks for another grant."""


def train(config: Config, world: World, claim: Callable[[World], fence.Token]) -> str:
    """Train to the last step, or to the step during which SIGTERM asked to stop; returns the outcome.

    "succeeded" leaves an exit record; "stopped" leaves a checkpoint of the step reached. `claim` gives the token of a
    generation. When one is over and this rank stays, it trains on in the next one. Raises fence.Superseded, Diverged
    (which leaves an exit record too), and ValueError for a configuration that does not fit the data.
    """
    stop = StopRequest()
    with contextlib.closing(GenerationCarryover()) as carryover:
        while True:
            with contextlib.suppress(GenerationEnded), _exchanging(world):
                return _train_in_one_generation(config, world, claim(world), stop, carryover)
            world = next_generation(world, config)
            exhaustion.give_back_memory(world.device)


class GrantedSteps:
    """How far one incarnation may go. All ranks call each method at the same time."""

    def __init__(self, store: Path, world: World) -> None:
        """Raises OSError, on all ranks, where the grants cannot be read."""
        self._store, self._world = store, world
        self._grant = self._newest(0)

    def are_done(self, step: int) -> bool:
        """Whether the step after `step` is not granted. Raises OSError, on all ranks."""
        if self._grant is None or step < self._grant.until:
            return False
        self._grant = self._newest(step)
        return self._grant is not None and step >= self._grant.until

    def wait_for_more(self, step: int, stop: object) -> bool:
        """Stay for a while, as the grant says, while rank 0 is not asked to stop; whether more steps are granted."""
        self._grant = self._newest(step, may_wait=True, stop=stop)
        return self._grant is None or step < self._grant.until

    def _newest(self, step: int, may_wait: bool = False, stop: object = False) -> StepGrant | None:
        """The newest grant, on all ranks; rank 0 waits for one that goes beyond `step`, as long as the newest says."""
        newest, fault = None, ""
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
    """Put on record which rank has which samples of each batch, from here to the end of this generation."""
    world = trainer.world
    named = zip(world.all_gather(nodes.name()), order.spans(sequences, world.mesh), strict=True)
    ranks = {str(rank): [node, *span] for rank, (node, span) in enumerate(named)}
    trainer.record("divided", step=trainer.step, sequences=sequences, ranks=ranks)


def _step_to_the_end(trainer: Trainer, stop: StopRequest) -> str:
    """Do the steps that are left; returns the outcome."""
    first, granted = trainer.step + 1, GrantedSteps(trainer.store, trainer.world)
    while trainer.step < trainer.config.run.steps:
        if granted.are_done(trainer.step) and not _more(trainer, granted, stop):
            trainer.recorder.record_end("stopped", causes.PAUSED, f"paused after step {trainer.step}", trainer.step)
            return "stopped"
        before, asked_to_stop = trainer.step, trainer.train_step(True if trainer.lookout.asks_to_stop else stop)
        if trainer.step == first:
            trainer.record("stepped", step=first)
            with trainer.timeline.doing("checkpoint"):
                trainer.saver.prepare(trainer.engine)  # the optimiser has its state now
        if trainer.step > before and trainer.due(trainer.config.validation.every):
            with trainer.timeline.part("validation"):
                trainer.validate()
        last = asked_to_stop or trainer.step == trainer.config.run.steps
        if tiers := trainer.save_schedule.last_tiers() if last else trainer.tiers_due:
            with trainer.timeline.part("checkpoint"):
                trainer.commit(tiers, last)
        elif trainer.together and trainer.due(trainer.config.storage.memory_steps):
            with trainer.timeline.part("checkpoint"):
                trainer.saver.hold(trainer.engine, trainer.progress())
        if trainer.scale_up.waiting and trainer.together and not last:
            _make_room(trainer)
        if asked_to_stop and trainer.step < trainer.config.run.steps:
            trainer.finish_commits()
            stops = bool(trainer.lookout.asks_to_stop)
            if leaving := scaling.leaving_nodes(trainer.world, nodes.name(), lambda: bool(stop), stops):
                _let_go(trainer, leaving)
            trainer.recorder.record_stop(trainer.step, BY_SIGNAL if stop else trainer.lookout.asks_to_stop)
            return "stopped"
    trainer.finish_commits()
    trainer.confirm_last_commit()
    trainer.recorder.record_end("succeeded", causes.DONE, "all steps done", trainer.step)
    return "succeeded"


def _make_room(trainer: Trainer) -> None:
    """End the generation after this step, so that the next one begins with the nodes that wait; does not return.

    What is being saved is saved first, and the state is in the memory of the nodes: whoever cannot get it from a rank
    that stays has it from there. Raises GenerationEnded where ranks stay; else their supervisor ends them.
    """
    trainer.finish_commits()
    trainer.saver.hold(trainer.engine, trainer.progress(), lasting=True)
    why = {"kind": causes.GROWN, "reason": trainer.scale_up.reason(trainer.step)}
    _end_generation(trainer, why, lambda: trainer.scale_up.admit(trainer.step))


def _let_go(trainer: Trainer, leaving: tuple[str, ...]) -> None:
    """End the generation after this step, so that the next one begins without these nodes; does not return.

    The checkpoint of the step is committed. Raises GenerationEnded where ranks stay; else their supervisor ends them.
    """
    why = {"kind": causes.STOP_REQUESTED, "reason": scaling.leave_reason(leaving, trainer.step)}
    stays = trainer.world.groups is not None and trainer.world.groups.stays
    _end_generation(trainer, why, lambda: scaling.let_go(leaving, nodes.name(), trainer.step, stays))


def _end_generation(trainer: Trainer, why: dict[str, str], announce: Callable[[], None]) -> None:
    """End the generation of all ranks, between two steps; does not return. Rank 0 calls `announce`.

    Raises GenerationEnded where ranks stay; else their supervisor ends them.
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
    """Save the step reached, and wait a while for more steps to be granted; whether they were. Raises OSError."""
    with trainer.timeline.part("checkpoint"):
        trainer.commit((DURABLE,), last=True)
        trainer.finish_commits()
    trainer.confirm_last_commit()
    return granted.wait_for_more(trainer.step, stop)


def _exchanging(world: World) -> contextlib.AbstractContextManager[None]:
    """Work with exchanges, which raises GenerationEnded where a rank is lost and this one stays."""
    if world.groups is None:
        return contextlib.nullcontext()
    return world.groups.exchanging(lambda error: rank_exit.kind_of(error) == causes.NETWORK)


def _is_worth_a_wait(newest: StepGrant, step: int, begun: float) -> bool:
    """Whether ranks that have waited since `begun` still wait: nobody has granted more, or had them leave."""
    return newest.until <= step and time.monotonic() - begun < newest.wait_seconds
