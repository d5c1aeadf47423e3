"""The daily report as text: for a terminal, as a digest, and as Markdown for the UI. Pure."""

from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urljoin

from slipway.resources.daily_report.report import DailyReport, ReportItem
from slipway.resources.trainings import incident_reports


def digest(report: DailyReport, address: str = "") -> str:
    """The whole report as plain text; `address` is the webserver's address, for links."""
    return "\n".join(
        [f"{_between(report)}: {report.sentence}.", *_sections(report, lambda item: _plain(item, address))]
    )


def markdown(report: DailyReport) -> str:
    """The whole report as Markdown. It is a list and not a table, since the UI cuts off wide tables."""
    return "\n".join([f"**{report.sentence}.**", "", f"_{_between(report)}_", *_sections(report, _marked)]) + "\n"


def todo_markdown(items: Sequence[ReportItem]) -> str:
    """What waits for a person, one item per line."""
    return "\n".join(f"- {_linked(item)}: {item.todo}" for item in items) or "nothing"


def where_and_cost(item: ReportItem) -> str:
    """Where it happened and what it cost, or "" if neither is known."""
    return "; ".join(part for part in (item.where, item.cost) if part)


def _between(report: DailyReport) -> str:
    return f"{incident_reports.when(report.since)} to {incident_reports.when(report.until)}"


def _sections(report: DailyReport, lines: Callable[[ReportItem], Iterator[str]]) -> Iterator[str]:
    for title, items in sections(report):
        yield f"\n{title}\n"
        for item in items:
            yield from lines(item)
    if not report.items:
        yield "\nNothing happened."


def sections(report: DailyReport) -> list[tuple[str, list[ReportItem]]]:
    """The items under their titles; titles without items are left out."""
    parts = {
        "Waiting for a person": report.waiting,
        "Recovering": [item for item in report.items if item.going and not item.needs_person],
        "Handled by the platform": [item for item in report.items if not item.going and not item.needs_person],
    }
    return [(title, items) for title, items in parts.items() if items]


def _plain(item: ReportItem, address: str) -> Iterator[str]:
    yield f"- {_when(item)}{item.subject}: {item.cause}: {_flat(item.what)}"
    details = where_and_cost(item)
    if details:
        yield f"    {details}"
    yield f"    done: {_flat(item.done)}"
    if item.todo:
        yield f"    to do: {_flat(item.todo)}"
    if item.command:
        yield f"    evidence: {item.command}"
    if item.path and address:
        yield f"    {urljoin(address, item.path)}"


def _marked(item: ReportItem) -> Iterator[str]:
    yield f"- {_when(item)}{_linked(item)}: {item.cause}: {_flat(item.what)}"
    details = where_and_cost(item)
    if details:
        yield f"    - {details}"
    yield f"    - done: {_flat(item.done)}"
    if item.todo:
        yield f"    - **to do: {_flat(item.todo)}**"
    if item.command:
        yield f"    - evidence: `{item.command}`"


def _linked(item: ReportItem) -> str:
    return f"[{item.subject}]({item.path})" if item.path else item.subject


def _when(item: ReportItem) -> str:
    return f"{incident_reports.when(item.at)}, " if item.at else ""


def _flat(value: str) -> str:
    return " ".join(value.split())
