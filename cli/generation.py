"""Generation tasks: a registered version writes answers, and each example is kept."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from slipway.cli import models, output
from slipway.cli.models import Model
from slipway.cli.verbs import AsJson, verb

SECTION = "Serving"


@verb(
    models.app,
    "slipway models evaluate slipway-tiny 3 --task adding --task gsm8k --examples 50",
    section=SECTION,
    changes=True,
)
def evaluate(
    model: Model,
    version: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", help="The version; by default the champion.")
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A task; may be repeated. By default all that need no download."),
    ] = None,
    include: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Tasks of one's own, as YAML files of lm-evaluation-harness.")
    ] = None,
    examples: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="Of each task, at most.")] = 100,
    hours: Annotated[float, typer.Option(metavar="NUMBER", min=0.01, help="After so long the job is ended.")] = 6.0,
    json: AsJson = False,
) -> None:
    """Have a job let a version answer tasks, and keep each answer.

    copying, counting and adding come with Slipway; others are those of lm-evaluation-harness, where it is installed.
    """
    from slipway.assets.generating import Generating
    from slipway.assets.suites.generation import answers, generate, offline

    gate = models.gate_of(model)
    champion = gate.promotions.champion_version()
    if version is None and champion is None:
        raise ValueError(f"model {gate.model}: it has no champion: name a version")
    chosen = champion if version is None and champion else models.version_of(gate, version or 0)
    folder = str(include.resolve()) if include else ""
    questions = generate.Questions(tuple(task or offline.TASKS), examples, folder, hours)
    with output.progress(f"version {chosen.number} answers") as progress_line:
        measuring = dataclasses.replace(gate.measuring, say=progress_line.update)
        results = Generating(measuring, gate.model).answer(chosen, questions)
    if json:
        return output.print_json(results)
    rows = [
        (result.task, result.examples, name, f"{value:.3f}", result.by)
        for result in results
        for name, value in result.metrics.items()
    ]
    output.print_table(("task", "examples", "metric", "mean", "by"), rows)
    output.note(f"each example: {gate.tiers.durable_path / answers.FOLDER / chosen.manifest}")
