"""The trainer, which freezes at given moments until it is killed or continued: nothing has to be met in passing.

``python -m tests.trainer.frozen MOMENTS CONFIG.json``. A moment is a step (``9``: step 9 is done and said), or a
number of syncs after it (``10.2``: two more files are on disk), as a commit is made of them. Only rank 0 freezes.
"""

import os
import signal
import sys

from trainer.__main__ import main
from trainer.report import Report


def freeze_at(moments: set[tuple[int, int]]) -> None:
    """Have this process stop itself at these moments, each a step and the syncs since."""
    now, report, sync = [0, 0], Report.step, os.fsync

    def reach(step: int, syncs: int) -> None:
        now[:] = step, syncs
        if (step, syncs) in moments:
            os.kill(os.getpid(), signal.SIGSTOP)

    def report_and_reach(told: Report, step: int, *figures: float) -> dict[str, float]:
        done = report(told, step, *figures)
        if told.leads:
            reach(step, 0)
        return done

    def sync_and_reach(descriptor: int) -> None:
        sync(descriptor)
        reach(now[0], now[1] + 1)

    Report.step = report_and_reach  # type: ignore[method-assign,assignment]
    os.fsync = sync_and_reach  # type: ignore[assignment]


if __name__ == "__main__":
    parts = [moment.partition(".") for moment in sys.argv[1].split(",")]
    freeze_at({(int(step), int(syncs or 0)) for step, _, syncs in parts})
    sys.exit(main(sys.argv[2:]))
