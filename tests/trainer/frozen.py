"""The trainer, which freezes at given steps until it is killed or continued: nothing has to be met in passing.

``python -m tests.trainer.frozen STEPS CONFIG.json``: each of the steps (``9`` or ``2,9``) is done and said when rank 0
freezes. The other ranks, and the process that writes checkpoints, do not. Changes are looked for all the time, as steps
take milliseconds here.
"""

import os
import signal
import sys

from slipway.trainer.__main__ import main
from slipway.trainer.metrics.report import StepReport
from slipway.trainer.step import hot_updates


def freeze_after(steps: set[int]) -> None:
    """Have this process stop itself after these steps."""
    report, hot_updates.LOOK_SECONDS = StepReport.step, 0.01

    def report_and_freeze(steps_report: StepReport, step: int, *figures: float) -> dict[str, float]:
        done = report(steps_report, step, *figures)
        if steps_report.is_rank_zero and step in steps:
            os.kill(os.getpid(), signal.SIGSTOP)
        return done

    StepReport.step = report_and_freeze  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    freeze_after({int(step) for step in sys.argv[1].split(",")})
    sys.exit(main(sys.argv[2:]))
