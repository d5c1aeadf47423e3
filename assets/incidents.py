"""Incidents: an external asset with a partition for each, and the overview of all of them for the morning after.

What an incident shows is computed from its records (`slipway.resources.trainings.incident_reports`); the sensor
`incidents` reports it, again when something about it has changed.
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
"""Of the overview; the latest ones."""
SHOWN_CHARACTERS = 900
"""Longer Markdown is hidden behind a click (dagster-webserver 1.13: from 1,000 characters on)."""
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


def incident_materialisation(report: IncidentReport, page: str, folder: str) -> dg.AssetMaterialization:
    """The event that shows one incident; `page` is its post-mortem, `folder` has its evidence.

    The UI shows the metadata in this order: what a person asks first comes first.
    """
    lost = {"seconds_lost": report.seconds_lost, "steps_lost": report.steps_lost}
    return dg.AssetMaterialization(
        keys.key(report.recipe, "incident"),
        partition=report.name,
        description=incident_reports.headline(report),
        metadata={
            "what_happened": incident_reports.headline(report),
            "to_be_done": report.todo or "nothing",
            "state": report.state,
            "cause": report.cause,
            "kind": report.kind or "unknown",
            "nodes": ", ".join(report.nodes) or "not known",
            "ranks": ", ".join(map(str, report.ranks)) or "not known",
            "suspects": "; ".join(f"rank {suspect.rank}: {suspect.why}" for suspect in report.suspects) or "none",
            **({"kernel": "; ".join(report.kernel)} if report.kernel else {}),
            **{name: value for name, value in lost.items() if value is not None},
            "action": report.action,
            "went_on": incident_reports.went_on(report),
            "at": dg.MetadataValue.timestamp(report.at),
            "step": report.step,
            **({"resumed_from": report.resumed_from} if report.resumed_from is not None else {}),
            "noticed_by": report.noticed_by,
            "training": report.training,
            **({"timeline": plots.png_markdown(timeline(report), "seconds lost")} if report.seconds else {}),
            "post_mortem": dg.MetadataValue.md(page),
            "dagster/uri": folder,
        },
        tags={"dagster/data_version": version(report)},
    )


def timeline(report: IncidentReport) -> "Figure":
    """Where the seconds of an incident went, one bar from the last step on; steps that are done again come last."""
    figure = figures.new_figure()
    axes = figure.subplots()
    at = 0.0
    ordered = sorted(report.seconds.items(), key=lambda entry: entry[0] == buckets.REPEATED)
    for index, (bucket, seconds) in enumerate(ordered):
        label = f"{buckets.TITLES[bucket]}: {seconds:,.2f} s"
        axes.barh([0], [seconds], left=at, color=COLOURS[index % len(COLOURS)], label=label)
        at += seconds
    axes.set(xlabel="seconds lost", yticks=[])
    axes.set_title(f"{report.name}: {incident_reports.cost(report)}", fontsize=8)
    axes.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=2)
    return figure


def overview(reports: Sequence[IncidentReport], now: float) -> dg.AssetMaterialization:
    """The event that shows all incidents on one page, those that wait for a person first."""
    last = _last_day(reports, now)
    waiting = [report for report in _ordered(reports) if report.state == WAITING]
    metadata: dict[str, Any] = {
        "summary": sentence(reports, now),
        "to_be_done": dg.MetadataValue.md(_list(waiting, _todo) if waiting else "nothing"),
        **({"by_cause": _sums(last, lambda report: (report.kind or "unknown",))} if last else {}),
        **({"by_node": _sums(last, lambda report: report.nodes or ("not known",))} if last else {}),
        **({"latest": dg.MetadataValue.md(_list(_ordered(last), _line))} if last else {}),
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
    """What the page says, as its data version; another one when an incident becomes older than a day."""
    lines = sorted(f"{report.name}:{version(report)}:{now - report.at <= DAY}" for report in reports)
    return digest.sha256(" ".join(lines).encode())[:16]


def sentence(reports: Sequence[IncidentReport], now: float) -> str:
    """The first thing that a person reads in the morning."""
    last = _last_day(reports, now)
    waiting, going = (sum(report.state == state for report in reports) for state in (WAITING, RECOVERING))
    seconds, steps = sum(report.seconds_lost or 0.0 for report in last), sum(report.steps_lost or 0 for report in last)
    todo = f"{waiting} wait{'s' if waiting == 1 else ''} for a person" if waiting else "nothing is to be done"
    more = f", {going} recover{'s' if going == 1 else ''} now" if going else ""
    lost = f"{counted(len(last), 'incident')} in 24 hours, {seconds:,.0f} s and {counted(steps, 'step')} lost"
    return f"{lost}; {todo}{more}"


def overview_page(reports: Sequence[IncidentReport], now: float) -> str:
    """All of it as Markdown: in lines that wrap, as the UI cuts off a table that is wider than its window."""
    entries = [_entry(report) for report in _ordered(reports)[:ROWS]] or ["There is no incident."]
    return "\n\n".join([f"**{sentence(reports, now)}.**", *entries]) + "\n"


def _last_day(reports: Iterable[IncidentReport], now: float) -> list[IncidentReport]:
    return [report for report in reports if now - report.at <= DAY]


def _ordered(reports: Iterable[IncidentReport]) -> list[IncidentReport]:
    """Those that wait for a person first, then those that recover now, then the latest."""
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
    """The same in one line."""
    cost = f"{incident_reports.cost(report)}; {report.state}"
    return f"- {_linked(report)}, {incident_reports.when(report.at)}: {_what(report)}; {cost}"


def _todo(report: IncidentReport) -> str:
    """What a person is to do about an incident."""
    return f"- {report.todo} ({_linked(report)}, {report.training}: {_what(report)})"


def _what(report: IncidentReport) -> str:
    return _flat(f"{report.kind or 'unknown'}: {incident_reports.first_line(report.cause)}")


def _linked(report: IncidentReport) -> str:
    """Where it began, as a link to the incident's partition."""
    path = "/".join(keys.key(report.recipe, "incident").path)
    return (
        f"[{incident_reports.named(report) or report.training}](/assets/{path}?view=partitions&partition={report.name})"
    )


def _list(reports: Sequence[IncidentReport], line: Callable[[IncidentReport], str]) -> str:
    """As many lines as the UI shows without a click, and how many more there are."""
    lines: list[str] = []
    for entry in map(line, reports):
        if lines and sum(map(len, lines)) + len(entry) > SHOWN_CHARACTERS:
            return "\n".join([*lines, f"- and {len(reports) - len(lines)} more: open `page`"])
        lines.append(entry)
    return "\n".join(lines)


def _sums(reports: Iterable[IncidentReport], names: Callable[[IncidentReport], Sequence[str]]) -> str:
    """How many incidents each name has, and what they cost, the dearest first; one with several names is shared."""
    counts, seconds = Counter[str](), dict[str, float]()
    for report in reports:
        for name in (shared_by := names(report)):
            counts[name] += 1
            seconds[name] = seconds.get(name, 0.0) + (report.seconds_lost or 0.0) / len(shared_by)
    ordered = sorted(counts, key=lambda name: -seconds[name])
    return "; ".join(f"{name}: {counts[name]}, {seconds[name]:,.1f} s lost" for name in ordered)


def _flat(value: str) -> str:
    return value.replace("\n", " ")
