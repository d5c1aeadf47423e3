"""Simulate: what weeks of a large training on machines that fail would give."""

from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import output
from slipway.cli.verbs import AsJson, group, verb
from slipway.trainer.base.units import HOUR

if TYPE_CHECKING:
    from slipway.operations.simulation.play import SimulatedTime

app = group("Simulation.")
SECTION = "Trainings"


@verb(app, "slipway simulate 16384 stall=0.5 spares=16", section=SECTION)
def simulate(
    gpus: Annotated[int, typer.Argument(metavar="GPUS", min=1, help="How many GPUs the training has.")],
    fields: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIELD=VALUE]...", help="Of the scenario: days, detect, hang, restart, restore, ..."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same history.")] = 0,
    json: AsJson = False,
) -> None:
    """Play weeks of a training on machines that fail.

    It says the effective time, the best interval, the spares needed, and what each improvement would buy.

    The failures are those that Llama 3's training published; the costs are measured ones. Times are seconds.
    """
    from slipway.operations.simulation import settings as scenario_settings
    from slipway.operations.simulation import studies
    from slipway.operations.simulation.play import play

    scenario = scenario_settings.scenario(gpus, fields or [])
    with output.progress("playing"):
        played = play(scenario, seed)
        best, daly = studies.best_interval(scenario, seed)
        spares = studies.spares_needed(scenario, seed)
        better = studies.improvements(scenario, seed)
    if json:
        summary = {"ettr": played.ettr, "best_interval": best, "daly_interval": daly, "spares_needed": spares}
        return output.print_json({**summary, **vars(played), "improvements": better})
    output.print_fields(_fields(played, best, daly, spares))
    print()
    head = ("improvement", "effective time", "days gained")
    output.print_table(
        head,
        [(improvement.change, f"{improvement.ettr:.2%}", f"{improvement.gained_days:+.2f}") for improvement in better],
    )


def _fields(played: "SimulatedTime", best: float, daly: float, spares: int) -> dict[str, object]:
    scenario = played.scenario
    spent = {
        "checkpoints": played.checkpoints,
        "repeated steps": played.repeated,
        "until detected": played.undetected,
        "restart, restore, first step": played.restarting,
        "missing nodes": played.missing,
    }
    worst = sorted(played.by_cause.items(), key=lambda pair: -pair[1])[:3]
    return {
        "played": f"{scenario.days:g} days of {scenario.gpus:,} GPUs: {played.failures:,} failures, one in "
        f"{scenario.between / HOUR:.2f} h",
        "effective time": f"{played.ettr:.2%}",
        **{name: f"{seconds / played.seconds:.2%}" for name, seconds in spent.items()},
        "worst causes": ", ".join(f"{name} {seconds / played.seconds:.2%}" for name, seconds in worst) or "-",
        "best interval": f"{best:,.0f} s of those tried; Daly's optimum is {daly:,.0f} s",
        "spare nodes": f"{spares} so that 99 % of the failures find one; {scenario.spares} now",
    }
