"""The supervisor of a node, one of whose ranks sends itself a signal after a step: nothing has to be met in passing.

``python -m tests.trainer.elastic.dying RANK STEPS SIGNAL TIMES FOLDER ARGUMENT...``: in all generations together the
rank does it TIMES times, which it counts in FOLDER. STEPS are separated by commas.
"""

import os
import signal
import sys
from pathlib import Path

from slipway.trainer.metrics.report import StepReport
from slipway.trainer.supervisor import main


def signal_after(rank: str, steps: set[int], number: signal.Signals, times: int, folder: Path) -> None:
    report = StepReport.step

    def report_and_die(steps_report: StepReport, done: int, *figures: float) -> dict[str, float]:
        metrics = report(steps_report, done, *figures)
        before = len(list(folder.iterdir()))
        if done in steps and os.environ["RANK"] == rank and before < times:
            (folder / str(before)).touch()
            os.kill(os.getpid(), number)
        return metrics

    StepReport.step = report_and_die  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    rank, steps, number, times, folder = sys.argv[1:6]
    signal_after(rank, set(map(int, steps.split(","))), signal.Signals(int(number)), int(times), Path(folder))
    sys.exit(main(sys.argv[6:]))
