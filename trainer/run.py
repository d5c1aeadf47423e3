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
from trainer.loop import Trainer, step_to_the_end
from trainer.node.stay import GenerationEnded
from trainer.node.world import World, next_generation
from trainer.record import causes, endings, fence
from trainer.record.recorder import RankRecorder
from trainer.record.scores import Diverged
from trainer.recovery import ended
from trainer.recovery.batches import LossSpike
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
                return step_to_the_end(config, trainer, stop)
        except GenerationEnded:
            trainer.keep()
            raise
        except causes.Failure as error:
            if world.leads:
                ended.note(trainer.store, token, error, trainer.step, config.recovery.policies)
            if isinstance(error, Diverged | LossSpike):
                trainer.finish_commits()
                trainer.record_end("failed", error.kind, str(error))
            raise


def _exchanging(world: World) -> contextlib.AbstractContextManager[None]:
    """Work with exchanges, which raises GenerationEnded where a rank is lost and this one stays."""
    if world.groups is None:
        return contextlib.nullcontext()
    return world.groups.exchanging(lambda error: endings.kind_of(error) == "")
