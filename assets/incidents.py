"""Incidents: an external asset with a partition for each incident, and an overview of all of them.

An incident's metadata is computed from its records (`slipway.resources.trainings.incident_reports`). The sensor
`incidents` reports it, and again after every change.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from slipway.assets import figures, keys, plots
from slipway.recipes.training import TrainingRecipe
from slipway.resources.trainings import incident_reports
from slipway.resources.trainings.incident_reports import RECOVERING, WAITING, IncidentReport
from slipway.trainer.base import codec, digest
from slipway.trainer.base.quantities import counted
from slipway.trainer.base.units import DAY
from slipway.trainer.record.accounting import buckets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVERVIEW = dg.AssetKey(["platform", "incidents"])
ROWS = 50
"""The most incidents on the overview, the latest ones."""
SHOWN_CHARACTERS = 900
"""The UI hides longer Markdown behind a click (dagster-webserver 1.13: from 1,000 characters on)."""
COLORS = ("#d62728", "#ff7f0e", "#bcbd22", "#9467bd", "#17becf", "#1f77b4", "#2ca02c", "#8c564b", "#7f7f7f")


def incident_assets(recipe: TrainingRecipe) -> list[dg.AssetSpec]:
    """The incident asset of one recipe, with a partition for each incident."""
    return [
        dg.AssetSpec(
            keys.key(recipe.name, "incident"),
            deps=[keys.key(recipe.name, "training")],
            partitions_def=keys.incident_partitions(recipe.name),
            group_name=keys.lane(recipe.name),
            kinds={"incident"},
            owners=[recipe.owner],
            description=(
                "An interruption of the training: its cause, evidence, suspect nodes or ranks, cost and recovery, and "
                "whether a person must act. The sensor `incidents` reports it."
            ),
        )
    ]


def overview_asset() -> dg.AssetSpec:
    """The asset that shows all incidents on one page."""
    return dg.AssetSpec(
        OVERVIEW,
        group_name="platform",
        owners=["team:platform"],
        kinds={"incident"},
        description="All incidents of the last days on one page: causes, costs, and what a person must do.",
    )


def version(report: IncidentReport) -> str:
    """The data version of an incident's partition: a hash of its report."""
    return digest.sha256(json.dumps(codec.plain(report), sort_keys=True).encode())[:16]


def incident_materialization(report: IncidentReport, page: str, folder: str) -> dg.AssetMaterialization:
    """The event that shows one incident; `page` is its post-mortem, `folder` has its evidence.

    The UI keeps the order of the metadata, so the most important entries come first.
    """
    entries: dict[str, Any] = {
        "what_happened": incident_reports.headline(report),
        "to_be_done": report.todo or "nothing",
        "state": report.state,
        "cause": report.cause,
        "kind": report.kind or "unknown",
        "nodes": ", ".join(report.nodes) or "not known",
        "ranks": ", ".join(map(str, report.ranks)) or "not known",
        "suspects": "; ".join(f"rank {suspect.rank}: {suspect.why}" for suspect in report.suspects) or "none",
        "kernel": "; ".join(report.kernel) or None,
        "seconds_lost": report.seconds_lost,
        "steps_lost": report.steps_lost,
        "action": report.action,
        "went_on": incident_reports.went_on(report),
        "at": dg.MetadataValue.timestamp(report.at),
        "step": report.step,
        "resumed_from": report.resumed_from,
        "noticed_by": report.noticed_by,
        "training": report.training,
        "timeline": plots.png_markdown(timeline(report), "seconds lost") if report.seconds else None,
        "post_mortem": dg.MetadataValue.md(page),
        "dagster/uri": folder,
    }
    return dg.AssetMaterialization(
        keys.key(report.recipe, "incident"),
        partition=report.name,
        description=incident_reports.headline(report),
        metadata={name: value for name, value in entries.items() if value is not None},
        tags={"dagster/data_version": version(report)},
    )


def timeline(report: IncidentReport) -> "Figure":
    """One bar of the seconds that an incident cost, by bucket, from the last step on. Repeated steps come last."""
    figure = figures.new_figure()
    axes = figure.subplots()
    at = 0.0
    ordered = sorted(report.seconds.items(), key=lambda entry: entry[0] == buckets.REPEATED)
    for index, (bucket, seconds) in enumerate(ordered):
        label = f"{buckets.TITLES[bucket]}: {seconds:,.2f} s"
        axes.barh([0], [seconds], left=at, color=COLORS[index % len(COLORS)], label=label)
        at += seconds
    axes.set(xlabel="seconds lost", yticks=[])
    axes.set_title(f"{report.name}: {incident_reports.cost(report)}", fontsize=8)
    axes.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2)
    return figure


def overview(reports: Sequence[IncidentReport], now: float) -> dg.AssetMaterialization:
    """The event that shows all incidents on one page; those that wait for a person come first."""
    last = _last_day(reports, now)
    waiting = [report for report in _ordered(reports) if report.state == WAITING]
    metadata: dict[str, Any] = {
        "summary": sentence(reports, now),
        "to_be_done": dg.MetadataValue.md(_list(waiting, _todo) or "nothing"),
    }
    if last:
        metadata["by_cause"] = _sums(last, lambda report: (report.kind or "unknown",))
        metadata["by_node"] = _sums(last, lambda report: report.nodes or ("not known",))
        metadata["latest"] = dg.MetadataValue.md(_list(_ordered(last), _line))
    metadata |= {
        "page": dg.MetadataValue.md(overview_page(reports, now)),
        "incidents_of_24_hours": len(last),
        "seconds_lost_in_24_hours": round(sum(report.seconds_lost or 0.0 for report in last), 1),
        "steps_lost_in_24_hours": sum(report.steps_lost or 0 for report in last),
        "waiting_for_a_person": len(waiting),
    }
    return dg.AssetMaterialization(
        OVERVIEW,
        description=sentence(reports, now),
        metadata=metadata,
        tags={"dagster/data_version": overview_version(reports, now)},
    )


def overview_version(reports: Sequence[IncidentReport], now: float) -> str:
    """The data version of the overview: a hash of the reports, which also changes as incidents become a day old."""
    lines = sorted(f"{report.name}:{version(report)}:{now - report.at <= DAY}" for report in reports)
    return digest.sha256(" ".join(lines).encode())[:16]


def sentence(reports: Sequence[IncidentReport], now: float) -> str:
    """A summary of the last day in one sentence."""
    last = _last_day(reports, now)
    waiting, going = (sum(report.state == state for report in reports) for state in (WAITING, RECOVERING))
    seconds = sum(report.seconds_lost or 0.0 for report in last)
    steps = sum(report.steps_lost or 0 for report in last)
    todo = "nothing is to be done"
    if waiting:
        todo = f"{waiting} wait{'s' if waiting == 1 else ''} for a person"
    more = ""
    if going:
        more = f", {going} recover{'s' if going == 1 else ''} now"
    lost = f"{counted(len(last), 'incident')} in 24 hours, {seconds:,.0f} s and {counted(steps, 'step')} lost"
    return f"{lost}; {todo}{more}"


def overview_page(reports: Sequence[IncidentReport], now: float) -> str:
    """The overview as Markdown, in lines that wrap, because the UI cuts off tables wider than its window."""
    entries = [_entry(report) for report in _ordered(reports)[:ROWS]] or ["There is no incident."]
    return "\n\n".join([f"**{sentence(reports, now)}.**", *entries]) + "\n"


def _last_day(reports: Iterable[IncidentReport], now: float) -> list[IncidentReport]:
    return [report for report in reports if now - report.at <= DAY]


def _ordered(reports: Iterable[IncidentReport]) -> list[IncidentReport]:
    """Sorted by urgency: those that wait for a person, then those that recover now, then the latest."""
    return sorted(reports, key=lambda report: (report.state != WAITING, report.state != RECOVERING, -report.at))


def _entry(report: IncidentReport) -> str:
    """An incident in a few lines of Markdown."""
    rows = {
        "what": _what(report),
        "cost": incident_reports.cost(report),
        "done": report.action,
        "went on": f"{incident_reports.went_on(report)} ({report.state})",
        "to be done": f"**{report.todo}**" if report.todo else "nothing",
    }
    head = f"#### {_linked(report)}: {incident_reports.when(report.at)}, {report.training}"
    return "\n".join([head, "", *(f"- {name}: {_flat(value)}" for name, value in rows.items())])


def _line(report: IncidentReport) -> str:
    """An incident in one line of Markdown."""
    cost = f"{incident_reports.cost(report)}; {report.state}"
    return f"- {_linked(report)}, {incident_reports.when(report.at)}: {_what(report)}; {cost}"


def _todo(report: IncidentReport) -> str:
    """One line with the action for a person."""
    return f"- {report.todo} ({_linked(report)}, {report.training}: {_what(report)})"


def _what(report: IncidentReport) -> str:
    return _flat(f"{report.kind or 'unknown'}: {incident_reports.first_line(report.cause)}")


def _linked(report: IncidentReport) -> str:
    """The incident's origin as a link to its partition."""
    path = "/".join(keys.key(report.recipe, "incident").path)
    return (
        f"[{incident_reports.named(report) or report.training}](/assets/{path}?view=partitions&partition={report.name})"
    )


def _list(reports: Sequence[IncidentReport], line: Callable[[IncidentReport], str]) -> str:
    """As many lines as the UI shows without a click, and the number of the others."""
    lines: list[str] = []
    for entry in map(line, reports):
        if lines and sum(map(len, lines)) + len(entry) > SHOWN_CHARACTERS:
            return "\n".join([*lines, f"- and {len(reports) - len(lines)} more: open `page`"])
        lines.append(entry)
    return "\n".join(lines)


def _sums(reports: Iterable[IncidentReport], names: Callable[[IncidentReport], Sequence[str]]) -> str:
    """The number of incidents and the cost by name, the most expensive first. Several names share the cost."""
    counts = Counter[str]()
    seconds = dict[str, float]()
    for report in reports:
        shared_by = names(report)
        for name in shared_by:
            counts[name] += 1
            seconds[name] = seconds.get(name, 0.0) + (report.seconds_lost or 0.0) / len(shared_by)
    ordered = sorted(counts, key=lambda name: -seconds[name])
    return "; ".join(f"{name}: {counts[name]}, {seconds[name]:,.1f} s lost" for name in ordered)


def _flat(value: str) -> str:
    return value.replace("\n", " ")
