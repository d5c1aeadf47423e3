"""The page of a training: its status, curves, incidents, use of time, checkpoints and configuration. Pure.

A server updates an open page by sending the same sections again.
"""

import time
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from slipway.resources import html_layout, links
from slipway.resources.pages import curves
from slipway.resources.pages.reading import TrainingView, differences
from slipway.resources.trainings.status import FAILED, HANGING
from slipway.trainer.base.quantities import duration
from slipway.trainer.metrics.measures import FIRST_WINDOW

ROOT = "/slipway"
"""The path of the pages on Dagster's webserver."""
NAV = (("All pages", ROOT), ("Daily report", f"{ROOT}/morning"), ("Costs", f"{ROOT}/costs"))
"""The navigation links of all pages that a server shows."""
FIGURES = {
    "tokens_per_second": "tokens/s",
    "samples_per_second": "samples/s",
    "mfu": "MFU (share of the peak FLOP/s)",
    "learning_rate": "learning rate",
    "gradient_norm": "gradient norm before clipping",
}
"""The metrics of the last step that are shown as tiles."""


def address(training: str) -> str:
    """The path of a training's page on the webserver."""
    return f"{ROOT}/trainings/{training}"


def html(view: TrainingView, served: bool = False) -> str:
    """The whole page; `served` says whether a server updates it."""
    drawn = curves.data(view.fold)
    parts = sections(view, drawn, served)
    order = [
        f"<h1>{escape(view.name)}</h1>",
        f'<p class="quiet"><code>{escape(view.id)}</code> · <span id="freshness">as of {moment(view.at)}</span></p>',
        f'<div id="standing" role="status" aria-live="off">{parts["standing"]}</div>',
        '<section aria-labelledby="curves-title"><h2 id="curves-title">Curves</h2>',
        f'<div id="figures">{_curve_containers(drawn)}</div>',
        curves.data_script(drawn),
        f'<div id="table">{parts["table"]}</div></section>',
        *(
            f'<div id="{name}">{parts[name]}</div>'
            for name in ("incidents", "time", "checkpoints", "configuration", "links")
        ),
    ]
    nav = [*NAV, ("In Dagster", links.training(view.recipe, view.id))] if served else []
    title = f"{view.status.state}: {view.name}"
    return html_layout.page(title, order, live=view.status.is_live, served=served, scripts=curves.scripts(), nav=nav)


def renewal(view: TrainingView) -> dict[str, Any]:
    """The update of an open page, as a JSON document."""
    drawn = curves.data(view.fold)
    return {
        "title": f"{view.status.state}: {view.name}",
        "live": view.status.is_live,
        "state": view.status.state,
        "step": view.status.step,
        "sections": sections(view, drawn),
        "curves": drawn,
        "places": _curve_containers(drawn),
    }


def _curve_containers(drawn: Mapping[str, Any]) -> str:
    return "\n".join(curves.containers(dict(drawn)))


def sections(view: TrainingView, drawn: Mapping[str, Any], served: bool = True) -> dict[str, str]:
    """The HTML of each section, by its id. A page that is a file has no links to the server."""
    rare = view.rare
    return {
        "standing": "\n".join(_standing(view)),
        "table": curves.table(dict(drawn)),
        "incidents": html_layout.section("incidents", "Incidents", _incidents(view, served)),
        "time": html_layout.section("time", "Use of time", _seconds(rare.seconds)),
        "checkpoints": html_layout.section("checkpoints", "Checkpoints", _checkpoints(view)),
        "configuration": html_layout.section("configuration", "Configuration", _configuration(view)),
        "links": html_layout.section("links", "Links", _links(view, served)),
    }


def _standing(view: TrainingView) -> Iterator[str]:
    status = view.status
    kind = {FAILED: "red", HANGING: "warning"}.get(status.state, "state")
    yield f'<p class="{kind}"><b>{escape(status.summary[:1].upper() + status.summary[1:])}</b></p>'
    if status.steps:
        yield (
            f'<progress max="{status.steps}" value="{min(status.step, status.steps)}" '
            f'aria-label="step {status.step} of {status.steps}"></progress>'
        )
    yield html_layout.tiles(_tiles(view))
    yield html_layout.paragraph(_bound(view), "quiet")
    if view.fold.datasets:
        yield _datasets(view.fold.datasets)


def _bound(view: TrainingView) -> str:
    """What limits its speed, or when that will be known; "" if it does not run, or for a script."""
    status = view.status
    fold = view.fold
    if not status.is_live or status.steps is None:
        return ""
    if fold.bound:
        return f"Speed limit: {fold.bound[:1].lower()}{fold.bound[1:]}"
    if not fold.recent_steps:
        return ""
    return f"This page will show from step {fold.recent_steps[0] + FIRST_WINDOW:,} on what limits the speed."


def _datasets(read: Mapping[str, Mapping[str, float]]) -> str:
    """A table of what was read of each dataset of a mix, up to the last checkpoint."""
    total = sum(counts["tokens"] for counts in read.values()) or 1
    rows = [
        [name, f"{counts['tokens']:,.0f}", f"{counts['tokens'] / total:.1%}", f"{counts['passes']:.2f}"]
        for name, counts in read.items()
    ]
    return html_layout.table(["dataset", "tokens", "share", "passes"], rows)


def _tiles(view: TrainingView) -> Iterator[tuple[str, str]]:
    status = view.status
    figures = dict(view.status.figures)
    unit = _unit(view)
    when = "now" if status.is_live else f"at step {int(view.fold.last.get('step', 0)):,}"
    yield "steps done", f"{status.step:,} of {status.steps:,}" if status.steps else f"{status.step:,}"
    if status.seconds_left is not None:
        yield "left at the pace of the last steps", duration(status.seconds_left)
    if status.loss is not None:
        yield f"{unit}, loss {when}", html_layout.number(status.loss)
    if status.best_loss is not None:
        what = "best validation loss" if view.fold.validated else "best loss"
        yield f"{unit}, {what}, at step {status.best_step:,}", html_layout.number(status.best_loss)
    for name, title in FIGURES.items():
        if name in figures and not (name == "samples_per_second" and "tokens_per_second" in figures):
            yield f"{title} {when}", f"{figures[name]:.1%}" if name == "mfu" else html_layout.number(figures[name])
    yield "newest checkpoint", f"step {status.checkpoint:,}" if status.checkpoint else "none yet"
    if status.nodes:
        yield f"on {', '.join(status.nodes)}", f"start {status.incarnation}"
    else:
        yield "starts", "none yet"


def _unit(view: TrainingView) -> str:
    """The unit of its losses: nats for a built-in model, unknown for a script."""
    known = {"tokens_per_second": "nats per token", "samples_per_second": "nats per sample"}
    return next((unit for name, unit in known.items() if name in view.fold.last), "in its own unit")


def _incidents(view: TrainingView, served: bool) -> Iterator[str]:
    incidents = view.rare.incidents
    if not incidents:
        yield html_layout.paragraph("None.", "quiet")
        return
    yield html_layout.table(
        ["when", "what", "cost", "done", "state"],
        [
            [
                moment(incident.at),
                html_layout.link(incident.what, incident.path if served else ""),
                incident.cost,
                html_layout.worded(incident.done),
                incident.state,
            ]
            for incident in reversed(incidents)
        ],
        align_left=True,
        stacks=True,
    )


def _seconds(seconds: Mapping[str, float]) -> Iterator[str]:
    if not seconds:
        return
    total = sum(seconds.values())
    rows = sorted(seconds.items(), key=lambda item: -item[1])
    cells = [[name, f"{spent:,.1f}", f"{spent / total:.1%}"] for name, spent in rows]
    yield html_layout.table(["spent on", "seconds", "share"], [*cells, ["in all", f"{total:,.1f}", "100.0%"]])


def _checkpoints(view: TrainingView) -> Iterator[str]:
    for verdict in view.rare.verdicts:
        yield html_layout.paragraph(verdict)
    rows = [[f"{step:,}", moment(at), tiers or "-", score or "-"] for step, at, tiers, score in view.rare.checkpoints]
    if rows:
        yield html_layout.table(["step", "when", "held by", "evaluation"], rows, align_left=True)
    else:
        yield html_layout.paragraph("None yet.", "quiet")


def _configuration(view: TrainingView) -> Iterator[str]:
    rare = view.rare
    if rare.champion:
        rows = differences(rare.configuration, rare.champion)
        yield f"<h3>Compared with the champion: {escape(rare.champion_name)}</h3>"
        if rows:
            yield html_layout.table(["field", "this training", "champion"], rows, align_left=True)
        else:
            yield html_layout.paragraph("The configurations are the same.")
    elif rare.champion_name:
        yield html_layout.paragraph(f"The champion is {rare.champion_name}.")
    else:
        yield html_layout.paragraph("There is no champion yet for a comparison.", "quiet")
    for change in rare.changes:
        yield html_layout.paragraph(change)
    every_field = html_layout.table(["field", "value"], list(rare.configuration.items()), align_left=True)
    yield f"<details><summary>Every field</summary>{every_field}</details>"


def _links(view: TrainingView, served: bool) -> Iterator[str]:
    targets = [
        ("its sweep", f"{ROOT}/sweeps/{view.sweep}" if view.sweep else ""),
        ("its run in MLflow", view.mlflow_page),
        ("all trainings of its recipe in MLflow, to compare them", view.mlflow_others),
        ("the training in Dagster", links.training(view.recipe, view.id)),
        ("its checkpoints in Dagster", links.asset(links.lane(view.recipe), "checkpoint")),
        ("its incidents in Dagster", links.asset(links.lane(view.recipe), "incident")),
    ]
    yield "<ul>" + "".join(f"<li>{html_layout.link(name, where)}</li>" for name, where in targets if where and served)
    if view.mlflow_run and not (view.mlflow_page and served):
        yield f"<li>its run in MLflow: <code>{escape(view.mlflow_run)}</code></li>"
    for name in view.rare.profiles:
        where = f"{address(view.id)}/profiles/{name}"
        yield f"<li>{html_layout.link(f'profile {name}', where if served else '')} (Perfetto opens it)</li>"
    yield f"<li>its logs: <code>slipway logs {escape(view.id)}</code></li>"
    yield f"<li>its records: <code>{escape(str(view.folder))}</code></li></ul>"
    for fault in view.rare.faults:
        yield html_layout.paragraph(f"Not shown, because it could not be read: {fault}", "warning")


def moment(at: float) -> str:
    """A time in UTC; "-" for 0."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at)) if at else "-"
