"""The run: one training in one process, which may go through several generations of ranks.

Where ranks are started anew after a fault, a process has one generation. Where it stays, it takes its state, and the
memory of its saver, into the next one; everything else that belongs to a generation's token is made anew, so that no
part of it can go on under an older one.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

from trainer.base.processes import StopRequest
from trainer.config.resolved import Config
from trainer.loop import Trainer
from trainer.node.stay import GenerationEnded
from trainer.node.world import World, next_generation
from trainer.record import causes, endings, fence
from trainer.record.recorder import BY_SIGNAL, RankRecorder
from trainer.resumption import Kept
from trainer.step import exhaustion


def train(config: Config, world: World, claim: Callable[[World], fence.Token]) -> str:
    """Train to the last step, or to the step during which SIGTERM asked to stop; returns the outcome.

    "succeeded" leaves an exit record; "stopped" leaves a checkpoint of the step reached. `claim` gives the token of a
    generation. When one is over and this rank stays, it trains on in the next one. Raises fence.Superseded, Diverged
    (which leaves an exit record too), and ValueError for a configuration that does not fit the data.
    """
    stop = StopRequest()
    with contextlib.closing(Kept()) as kept:
        while True:
            with contextlib.suppress(GenerationEnded), _exchanging(world):
                return _train_in_one_generation(config, world, claim(world), stop, kept)
            world = next_generation(world, config)
            exhaustion.give_back_memory(world.device)


def _train_in_one_generation(config: Config, world: World, token: fence.Token, stop: StopRequest, kept: Kept) -> str:
    with (
        RankRecorder(Path(config.placement.store), token, world.rank) as recorder,
        contextlib.closing(Trainer(config, world, token, recorder, kept)) as trainer,
    ):
        try:
            with _exchanging(world):
                trainer.restore()
                trainer.probe()
                trainer.feed.stage_rest(trainer.step)
                return _step_to_the_end(config, trainer, stop)
        except GenerationEnded:
            trainer.keep()
            raise
        except causes.Failure as error:
            trainer.tell(error)
            raise


def _step_to_the_end(config: Config, trainer: Trainer, stop: StopRequest) -> str:
    """Do the steps that are left; returns the outcome."""
    first = trainer.step + 1
    while trainer.step < config.run.steps:
        before, asked_to_stop = trainer.step, trainer.train_step(True if trainer.lookout.asks_to_stop else stop)
        if trainer.step == first:
            trainer.record("stepped", step=first)
        if trainer.step > before and trainer.due(trainer.config.validation.every):
            with trainer.timeline.part("validation"):
                trainer.validate()
        last = asked_to_stop or trainer.step == config.run.steps
        if tiers := trainer.save_schedule.last_tiers() if last else trainer.tiers_due:
            with trainer.timeline.part("checkpoint"):
                trainer.commit(tiers, last)
        if asked_to_stop and trainer.step < config.run.steps:
            trainer.finish_commits()
            trainer.recorder.record_stop(trainer.step, BY_SIGNAL if stop else trainer.lookout.asks_to_stop)
            return "stopped"
    trainer.finish_commits()
    trainer.confirm_last_commit()
    trainer.recorder.record_end("succeeded", causes.DONE, "all steps done", trainer.step)
    return "succeeded"


def _exchanging(world: World) -> contextlib.AbstractContextManager[None]:
    """Work with exchanges, which raises GenerationEnded where a rank is lost and this one stays."""
    if world.groups is None:
        return contextlib.nullcontext()
    return world.groups.exchanging(lambda error: endings.kind_of(error) == causes.NETWORK)
