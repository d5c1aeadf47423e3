"""Trainings in your own scripts: a loop that uses `training` is launched, fenced and recovered like Slipway's own.

    with script.training() as training:
        state = training.restored                       # the newest good checkpoint, None at first
        for step in training.steps(1000):               # the steps that are left
            ...
            training.report(loss, accuracy=accuracy)    # once in each step, on every rank
            if training.due(every=50):
                training.commit({"model.safetensors": data}, validation_loss=measured)

It imports no framework and uses no collectives: if the ranks must agree, rank 0 decides, and the others read the
decision in the training's folder. Exit codes are those of `python -m slipway.trainer`.
"""

from slipway.trainer.script.script_training import ScriptTraining, training
from slipway.trainer.script.settings import FORMAT

__all__ = ["FORMAT", "ScriptTraining", "training"]
