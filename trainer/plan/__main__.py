"""The plan as a process of its own: reads a question from standard input, and prints the measure as JSON."""

import json
import logging
import sys
import warnings

from slipway.trainer.base import codec, console, parsing
from slipway.trainer.plan import question


def main() -> int:
    """Exit code 2 and one line on standard error for a question that cannot be answered."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    try:
        plan_question = question.build(parsing.value(sys.stdin.read()))
        from slipway.trainer.plan import stages  # imports torch

        measures = stages.measure(plan_question)
    except ValueError as error:
        console.warn(str(error))
        return 2
    console.say(json.dumps([codec.plain(measure) for measure in measures]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
