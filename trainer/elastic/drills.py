"""Drills: a rank injects a fault into itself or its values, on the order of an operator
(`slipway.trainer.record.drills`).

With `recovery.drills: true` in the recipe, a thread looks for orders each second, and hooks around the model's forward
passes carry them out. Without it there is no thread and no hook.
"""

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from slipway.trainer.config import layout
from slipway.trainer.config.resolved import Config
from slipway.trainer.elastic.outliers import median
from slipway.trainer.node.world import World
from slipway.trainer.record import drills
from slipway.trainer.record.fence import Token
from slipway.trainer.record.recorder import RankRecorder, warn_if_unwritable

LOOK_SECONDS = 1.0
BIT = 1 << 20
"""The bit that flips in 32 bits of weights: one in the middle of the mantissa of a float32."""
SIGNALS = {drills.KILL: signal.SIGKILL, drills.CRASH: signal.SIGSEGV, drills.STOP: signal.SIGSTOP}
SLOWER = 2.0
"""A slow rank sleeps before each forward pass for this many times the usual time between two passes."""
PASSES = 5
"""The usual time is the median over this many passes, so that a checkpoint between two of them does not count."""
TAG = 4711
"""The tag of a message that no rank sends: receiving it hangs."""


@contextlib.contextmanager
def heard(config: Config, world: World, token: Token, model: nn.Module, recorder: RankRecorder) -> Iterator[None]:
    """Carry out orders while the context is open, if the recipe allows drills."""
    if not config.recovery.drills:
        yield
        return
    drill = Drill(config, world, token, model, recorder)
    try:
        yield
    finally:
        drill.close()


class Drill:
    """The drills of one rank in one generation."""

    def __init__(self, config: Config, world: World, token: Token, model: nn.Module, recorder: RankRecorder) -> None:
        self._store = Path(config.placement.store)
        self._world = world
        self._token = token
        self._model = model
        self._recorder = recorder

        # Orders: the ids of those read, and the kinds that the next pass carries out.
        self._known_ids: set[str] = set()
        self._due: list[str] = []
        self._for_ever = False
        """Whether every pass gives NaN from now on."""

        # A slow rank, for a time and a number of passes.
        self._slow_until = 0.0
        self._slow_passes = 0
        self._begun = time.monotonic()
        """The begin of the last forward pass, after its sleep."""
        self._passes: deque[float] = deque(maxlen=PASSES)
        """Seconds between the last passes."""
        batch = config.batch
        self._passes_a_step = layout.micro_batches(batch.sequences, batch.micro, world.data_size)

        self._hooks = [model.register_forward_pre_hook(self._before), model.register_forward_hook(self._after)]
        self._over = threading.Event()
        threading.Thread(target=self._listen, name="drills", daemon=True).start()

    def close(self) -> None:
        """End the thread, and remove the hooks."""
        self._over.set()
        for hook in self._hooks:
            hook.remove()

    def _listen(self) -> None:
        while not self._over.is_set():
            with warn_if_unwritable("order of a drill"):
                self._look()
            self._over.wait(LOOK_SECONDS)

    def _look(self) -> None:
        for id, order in drills.orders(self._store, self._world.rank, str(self._token)).items():
            if id in self._known_ids:
                continue
            self._known_ids.add(id)
            self._recorder.record_own(
                "drill", "drill", kind=order.kind, by=order.by, what=drills.KINDS.get(order.kind, "")
            )
            self._recorder.flush()
            if order.kind in SIGNALS:
                os.kill(os.getpid(), SIGNALS[order.kind])
            elif order.kind == drills.NAN_FOR_EVER:
                self._for_ever = True
            elif order.kind == drills.SLOW:
                self._slow_passes = drills.SLOW_STEPS * self._passes_a_step
                self._slow_until = time.monotonic() + drills.SLOW_SECONDS
            else:
                self._due.append(order.kind)

    def _before(self, model: nn.Module, inputs: Any) -> None:
        if not torch.is_grad_enabled():
            return
        now = time.monotonic()
        self._passes.append(now - self._begun)
        if now < self._slow_until or self._slow_passes > 0:
            self._slow_passes -= 1
            time.sleep(SLOWER * median(self._passes))
        self._begun = time.monotonic()
        if self._takes(drills.FLIP):
            flip(model)
        if self._takes(drills.HANG):
            other = (self._world.rank + 1) % self._world.size
            dist.recv(torch.zeros(1, device=self._world.device), src=other, tag=TAG)

    def _after(self, model: nn.Module, inputs: Any, outputs: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return outputs
        if self._takes(drills.SPIKE):
            return 1000 * outputs
        if self._for_ever or self._takes(drills.NAN):
            outputs.register_hook(lambda gradient: gradient * float("nan"))  # type: ignore[no-untyped-call]
        return outputs

    def _takes(self, kind: str) -> bool:
        """Whether a fault of this kind is due; it is then no longer due."""
        if kind in self._due:
            self._due.remove(kind)
            return True
        return False


def flip(model: nn.Module) -> None:
    """Flip a bit of the first weight that this rank holds."""
    weight = next(model.parameters()).detach()
    local = weight.to_local() if hasattr(weight, "to_local") else weight
    local.view(torch.int32).view(-1)[0] ^= BIT
