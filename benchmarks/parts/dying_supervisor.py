"""The supervisor of a node whose rank kills itself after a step, and asks itself for a profile when it is back.

``python -m benchmarks.parts.dying_supervisor DIES PROFILES ARGUMENT...``: the steps, and the supervisor's arguments.
"""

import os
import signal
import sys

from slipway.trainer.elastic import generations
from slipway.trainer.metrics.report import StepReport
from slipway.trainer.supervisor import main


def send_signals(dies: int, profiles: int) -> None:
    """Have the rank send itself SIGKILL in the first generation, and SIGUSR2 in the one after it."""
    due = {(0, dies): signal.SIGKILL, (1, profiles): signal.SIGUSR2}
    report = StepReport.step

    def report_and_signal(steps: StepReport, done: int, *figures: float) -> dict[str, float]:
        metrics = report(steps, done, *figures)
        if number := due.get((generations.from_environment() or 0, done)):
            os.kill(os.getpid(), number)
        return metrics

    StepReport.step = report_and_signal  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    send_signals(int(sys.argv[1]), int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
