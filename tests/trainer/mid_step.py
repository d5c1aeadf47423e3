"""The trainer, which freezes in the middle of a step, between two micro-batches, until it is killed or continued.

``python -m tests.trainer.mid_step STEP PART CONFIG.json``: rank 0 freezes before this part of this step, both counted
from 1. Any step counts as a long one here.
"""

import os
import signal
import sys

from slipway.trainer.__main__ import main
from slipway.trainer.step import leaving
from slipway.trainer.step.leaving import Leaving


def freeze_in(step: int, part: int) -> None:
    """Have rank 0 stop itself there."""
    begin, look, begun = Leaving.begin, Leaving.look, [0]

    def counted(self: Leaving, stop: object) -> None:
        begun[0] += 1
        begin(self, stop)  # type: ignore[arg-type]

    def frozen(self: Leaving, done: int, parts: int) -> None:
        if (begun[0], done + 1) == (step, part) and os.environ.get("RANK", "0") == "0":
            os.kill(os.getpid(), signal.SIGSTOP)
        look(self, done, parts)

    Leaving.begin, Leaving.look = counted, frozen  # type: ignore[method-assign]
    leaving.LONG_SECONDS = 0.0


if __name__ == "__main__":
    freeze_in(int(sys.argv[1]), int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
