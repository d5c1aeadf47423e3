"""A training in one incarnation, from the newest good checkpoint to the last step.

Read it top-down: `train` opens the data, builds the model, restores, steps, commits, and records the outcome; how each
of these is done, `trainer.loop` says.
"""

import contextlib
from pathlib import Path

from trainer.base.processes import StopRequest
from trainer.config.resolved import Config
from trainer.loop import Trainer
from trainer.node.world import World
from trainer.record import causes, fence
from trainer.record.recorder import RankRecorder
from trainer.record.scores import Diverged
from trainer.recovery.batches import LossSpike


def train(config: Config, world: World, token: fence.Token) -> str:
    """Train to the last step, or to the step during which SIGTERM asked to stop; returns the outcome.

    "succeeded" leaves an exit record; "stopped" leaves a checkpoint of the step reached. Raises fence.Superseded,
    Diverged (which leaves an exit record too), and ValueError for a configuration that does not fit the data.
    """
    with (
        RankRecorder(Path(config.placement.store), token, world.rank) as recorder,
        contextlib.closing(Trainer(config, world, token, recorder)) as trainer,
    ):
        stop = StopRequest()
        trainer.restore()
        trainer.probe()
        trainer.feed.stage_rest(trainer.step)
        try:
            return _step_to_the_end(config, trainer, stop)
        except (Diverged, LossSpike) as error:
            trainer.finish_commits()
            trainer.record_end("failed", error.kind, str(error))
            raise


def _step_to_the_end(config: Config, trainer: Trainer, stop: StopRequest) -> str:
    """Do the steps that are left; returns the outcome."""
    first = trainer.step + 1
    while trainer.step < config.run.steps:
        before, asked_to_stop = trainer.step, trainer.train_step(stop)
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
            trainer.record_stop(bool(stop))
            return "stopped"
    trainer.finish_commits()
    trainer.confirm_last_commit()
    trainer.record_end("succeeded", causes.DONE, "all steps done")
    return "succeeded"
