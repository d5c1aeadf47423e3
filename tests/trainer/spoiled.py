"""The trainer with batches that are spoilt on purpose, as a fault of the data or of the hardware would.

``python -m tests.trainer.spoiled FAULTS CONFIG.json``: faults by commas. ``nan@5`` gives step 5 gradients that are not
finite, each time it is done; ``nan-once@5`` only the first time in this folder; ``nan-from@5`` every step from 5 on;
``spike@40`` multiplies the loss that step 40 is told by 100. ``flip@5`` flips a bit of the last rank's weights before
step 5. ``slow@0`` has the last rank's forward passes take 40 ms longer, and rank 0 look at the ranks all the time.
``freeze@8`` freezes rank 0 after step 8, as `tests.trainer.frozen` does.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from slipway.trainer.__main__ import main
from slipway.trainer.elastic import lookout
from slipway.trainer.step.engine import Engine
from slipway.trainer.step.passes import Passes, StepTotals, Sums
from tests.trainer.frozen import freeze_after

Fault = tuple[str, int]


def spoil(faults: list[Fault]) -> None:
    """Have this process spoil its batches."""
    accumulate, finish = Engine.accumulate, Engine.finish
    step, is_last = 0, os.environ.get("RANK") == str(int(os.environ.get("WORLD_SIZE", "1")) - 1)

    def spoilt(engine: Engine, rows: Any, numbers: Any, *more: Any) -> Sums:
        nonlocal step
        step = int(numbers[0]) // engine.config.batch.sequences + 1
        if is_last and ("flip", step) in faults:
            next(engine.model.parameters()).detach().view(torch.int32)[0, 0] ^= 1 << 20
        sums = accumulate(engine, rows, numbers, *more)
        if any(_due(kind, at, step) for kind, at in faults):
            for parameter in engine.model.parameters():
                if parameter.grad is not None:
                    torch.nn.init.constant_(parameter.grad, float("nan"))
        return sums

    def spiked(engine: Engine, sums: Sums, *others: float) -> StepTotals:
        done = finish(engine, sums, *others)
        return replace(done, loss=100 * done.loss) if ("spike", step) in faults else done

    if ("slow", 0) in faults:
        lookout.LOOK_SECONDS, lookout.PERSISTS_SECONDS = 0.2, 1.0
        if is_last:
            _slow_down()
    freeze_after({at for kind, at in faults if kind == "freeze"})
    Engine.accumulate = spoilt  # type: ignore[method-assign,assignment]
    Engine.finish = spiked  # type: ignore[method-assign,assignment]


def _slow_down() -> None:
    """Have each forward pass of this process take longer."""
    forward = Passes._forward

    def slowly(passes: Passes, called: Any, part: Any) -> Any:
        time.sleep(0.04)
        return forward(passes, called, part)

    Passes._forward = slowly  # type: ignore[method-assign,assignment]


def _due(kind: str, at: int, step: int) -> bool:
    due: dict[str, Callable[[], bool]] = {
        "nan": lambda: step == at,
        "nan-from": lambda: step >= at,
        "nan-once": lambda: step == at and _first_time(at),
    }
    return kind in due and due[kind]()


def _first_time(step: int) -> bool:
    mark = Path(f"spoilt-{step}-{os.environ.get('RANK', '0')}")
    first = not mark.exists()
    mark.touch()
    return first


if __name__ == "__main__":
    spoil([(kind, int(step)) for kind, _, step in (argument.partition("@") for argument in sys.argv[1].split(","))])
    sys.exit(main(sys.argv[2:]))
