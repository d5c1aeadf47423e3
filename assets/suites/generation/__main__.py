"""Generation as a short job: ``python -m slipway.assets.suites.generation REQUEST.json`` runs a version on its
questions.

The request has {durable, model, version, questions, outcome}: `slipway.serving.records.ServedVersion` and
`asking.Questions` as JSON. It runs where the launcher places it, and imports nothing of Dagster.
"""

import sys
from pathlib import Path
from typing import Any

from slipway.assets.suites.generation import generate
from slipway.assets.suites.generation.answers import TaskFigures
from slipway.assets.suites.generation.generate import Questions
from slipway.serving.client import NotAnswered
from slipway.serving.records import ServedVersion
from slipway.trainer.base import codec, console, parsing, regular_file
from slipway.trainer.base.processes import bind_to_launcher
from slipway.trainer.record import job_result

KIND = "generate"


def main(arguments: list[str]) -> int:
    """Run the request; returns 1 or 2, with a message, if it fails."""
    bind_to_launcher()
    request: dict[str, Any] = parsing.value(regular_file.read(Path(arguments[0])))
    version = codec.build(ServedVersion, request["version"])
    questions = codec.build(Questions, request["questions"])
    figures: list[TaskFigures] = []
    try:
        for task_figures in generate.evaluate(Path(request["durable"]), request["model"], version, questions, _say):
            figures.append(task_figures)
        job_result.succeed(Path(request["outcome"]), {"figures": codec.plain(figures)})
    except NotAnswered as error:
        console.warn(f"{KIND}: its worker: {error}")
        return 1
    except ValueError as error:
        console.warn(f"{KIND}: {error}")
        return 2
    except OSError as error:
        console.warn(f"{KIND}: {error}")
        return 1
    return 0


def _say(line: str) -> None:
    print(f"{KIND}: {line}", flush=True)


if __name__ == "__main__":
    console.explain("slipway.assets.suites.generation", "answers generation tasks for `slipway models evaluate`")
    sys.exit(main(sys.argv[1:]))
