"""Incidents: an external asset with a partition for each, and the overview of all of them for the morning after.

What an incident shows is computed from its records (`resources.trainings.incident_reports`); the sensor `incidents`
reports it, again when something about it has changed.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets import keys, plots
from recipes.training import TrainingRecipe
from resources.trainings import post_mortem
from resources.trainings.incident_reports import RECOVERING, WAITING, IncidentReport
from trainer.base import codec, digest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVERVIEW = dg.AssetKey(["platform", "incidents"])
DAY = 86_400.0
ROWS = 50
"""Of the overview; the latest ones."""
COLOURS = ("#d62728", "#ff7f0e", "#bcbd22", "#9467bd", "#17becf", "#1f77b4", "#2ca02c", "#8c564b", "#7f7f7f")


def incident_assets(recipe: TrainingRecipe) -> list[dg.AssetSpec]:
    """The incidents of one lane, a partition for each."""
    return [
        dg.AssetSpec(
            keys.key(recipe.name, "incident"),
            deps=[keys.key(recipe.name, "training")],
            partitions_def=keys.incident_partitions(recipe.name),
            group_name=keys.lane(recipe.name),
            kinds={"incident"},
            owners=[recipe.owner],
            description=(
                "What interrupted the steps of a training: cause, evidence, suspects, what it cost, what was done, "
                "and whether a person is needed. Reported by the sensor `incidents`."
            ),
        )
    ]


def overview_asset() -> dg.AssetSpec:
    """All incidents on one page."""
    return dg.AssetSpec(
        OVERVIEW,
        group_name="platform",
        owners=["team:platform"],
        kinds={"incident"},
        description="All incidents of the last days on one page: what happened, what it cost, what is to be done.",
    )


def version(report: IncidentReport) -> str:
    """What a report says, as the data version of its partition."""
    return digest.sha256(json.dumps(codec.plain(report), sort_keys=True).encode())[:16]


def incident_materialisation(recipe: str, report: IncidentReport, page: str, folder: str) -> dg.AssetMaterialization:
    """The event that shows one incident; `page` is its post-mortem, `folder` has its evidence."""
    lost = {"seconds_lost": report.seconds_lost, "steps_lost": report.steps_lost, "resumed_from": report.resumed_from}
    return dg.AssetMaterialization(
        keys.key(recipe, "incident"),
        partition=report.name,
        description=post_mortem.headline(report),
        metadata={
            "state": report.state,
            "to_be_done": report.todo or "nothing",
            "cause": report.cause,
            "kind": report.kind or "unknown",
            "at": dg.MetadataValue.timestamp(report.at),
            "step": report.step,
            "nodes": ", ".join(report.nodes) or "not known",
            "ranks": ", ".join(map(str, report.ranks)) or "not known",
            "suspects": "; ".join(f"rank {each.rank}: {each.why}" for each in report.suspects) or "none",
            **{name: value for name, value in lost.items() if value is not None},
            "action": report.action,
            "went_on": post_mortem.went_on(report),
            "noticed_by": report.noticed_by,
            **({"timeline": plots.png_markdown(timeline(report), "seconds lost")} if report.seconds else {}),
            "post_mortem": dg.MetadataValue.md(page),
            "training": report.training,
            "dagster/uri": folder,
        },
        tags={"dagster/data_version": version(report)},
    )


def timeline(report: IncidentReport) -> "Figure":
    """Where the seconds of an incident went, one bar from the last step to the first new one."""
    figure = plots.new_figure()
    axes = figure.subplots()
    at = 0.0
    for place, (mark, seconds) in enumerate(report.seconds.items()):
        label = f"{post_mortem.MEANING.get(mark, mark)}: {seconds:.1f} s"
        axes.barh([0], [seconds], left=at, color=COLOURS[place % len(COLOURS)], label=label)
        at += seconds
    axes.set(xlabel="seconds after the last step", yticks=[])
    axes.set_title(f"{report.name}: {post_mortem.cost(report)}", fontsize=8)
    axes.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2)
    return figure


def overview(reports: Sequence[IncidentReport], now: float) -> dg.AssetMaterialization:
    """The event that shows all incidents on one page, those that wait for a person first."""
    last = [each for each in reports if now - each.at <= DAY]
    metadata: dict[str, Any] = {
        "page": dg.MetadataValue.md(overview_page(reports, now)),
        "incidents_of_24_hours": len(last),
        "seconds_lost_in_24_hours": round(sum(each.seconds_lost or 0.0 for each in last), 1),
        "steps_lost_in_24_hours": sum(each.steps_lost or 0 for each in last),
        "waiting_for_a_person": sum(each.state == WAITING for each in reports),
    }
    return dg.AssetMaterialization(
        OVERVIEW,
        description=sentence(reports, now),
        metadata=metadata,
        tags={"dagster/data_version": overview_version(reports, now)},
    )


def overview_version(reports: Sequence[IncidentReport], now: float) -> str:
    """What the page says, as its data version; another one when an incident becomes older than a day."""
    told = sorted(f"{each.name}:{version(each)}:{now - each.at <= DAY}" for each in reports)
    return digest.sha256(" ".join(told).encode())[:16]


def sentence(reports: Sequence[IncidentReport], now: float) -> str:
    """The first thing that a person reads in the morning."""
    last = [each for each in reports if now - each.at <= DAY]
    waiting, going = (sum(each.state == state for each in reports) for state in (WAITING, RECOVERING))
    seconds, steps = sum(each.seconds_lost or 0.0 for each in last), sum(each.steps_lost or 0 for each in last)
    todo = f"{waiting} wait{'s' if waiting == 1 else ''} for a person" if waiting else "nothing is to be done"
    more = f", {going} recover{'s' if going == 1 else ''} now" if going else ""
    many = "1 incident" if len(last) == 1 else f"{len(last)} incidents"
    return f"{many} in 24 hours, {seconds:,.0f} s and {steps:,} steps lost; {todo}{more}"


def overview_page(reports: Sequence[IncidentReport], now: float) -> str:
    """All of it as Markdown."""
    ordered = sorted(reports, key=lambda each: (each.state != WAITING, each.state != RECOVERING, -each.at))[:ROWS]
    rows = [
        f"| {post_mortem.when(each.at)} | {each.training} | {_cell(', '.join([*each.nodes, *_ranks(each)]) or '-')} | "
        f"{_cell(each.kind or 'unknown')}: {_cell(post_mortem.first_line(each.cause))} | {post_mortem.cost(each)} | "
        f"{_cell(post_mortem.went_on(each))} | {each.state} | {_cell(each.todo or 'nothing')} | `{each.name}` |"
        for each in ordered
    ]
    head = "| when | training | where | what | cost | went on | state | to be done | partition |"
    table = [head, "|---|---|---|---|---|---|---|---|---|", *rows] if rows else ["There is no incident."]
    return "\n".join([f"**{sentence(reports, now)}.**", "", *table]) + "\n"


def _ranks(report: IncidentReport) -> list[str]:
    return [f"rank {rank}" for rank in report.ranks]


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")
