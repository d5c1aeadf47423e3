"""The report of a night as text: for a terminal, as a daily digest, and as Markdown for the UI. Pure."""

from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urljoin

from slipway.resources.daily_report.report import MorningItem, MorningReport
from slipway.resources.trainings import incident_reports


def digest(report: MorningReport, address: str = "") -> str:
    """The whole report in lines of plain text; `address` is the webserver's, for links."""
    return "\n".join(
        [f"{_between(report)}: {report.sentence}.", *_sections(report, lambda each: _plain(each, address))]
    )


def markdown(report: MorningReport) -> str:
    """The same as Markdown, in lines that wrap: the UI cuts off a table that is wider than its window."""
    return "\n".join([f"**{report.sentence}.**", "", f"_{_between(report)}_", *_sections(report, _marked)]) + "\n"


def todo_markdown(items: Sequence[MorningItem]) -> str:
    """What waits for a person, a line each."""
    return "\n".join(f"- {_linked(each)}: {each.todo}" for each in items) or "nothing"


def where_and_cost(each: MorningItem) -> str:
    """Where it happened and what it cost, as far as that is known; empty where neither is."""
    return "; ".join(part for part in (each.where, each.cost) if part)


def _between(report: MorningReport) -> str:
    return f"{incident_reports.when(report.since)} to {incident_reports.when(report.until)}"


def _sections(report: MorningReport, lines: Callable[[MorningItem], Iterator[str]]) -> Iterator[str]:
    for title, items in sections(report):
        yield f"\n{title}\n"
        for each in items:
            yield from lines(each)
    if not report.items:
        yield "\nNothing happened."


def sections(report: MorningReport) -> list[tuple[str, list[MorningItem]]]:
    """The items under their titles, without those that have none."""
    parts = {
        "Waits for a person": report.waiting,
        "Recovers now": [each for each in report.items if each.going and not each.needs_person],
        "Dealt with": [each for each in report.items if not each.going and not each.needs_person],
    }
    return [(title, items) for title, items in parts.items() if items]


def _plain(each: MorningItem, address: str) -> Iterator[str]:
    yield f"- {_when(each)}{each.subject}: {each.cause}: {_flat(each.what)}"
    if more := where_and_cost(each):
        yield f"    {more}"
    yield f"    done: {_flat(each.done)}"
    if each.todo:
        yield f"    to do: {_flat(each.todo)}"
    if each.command:
        yield f"    evidence: {each.command}"
    if each.path and address:
        yield f"    {urljoin(address, each.path)}"


def _marked(each: MorningItem) -> Iterator[str]:
    yield f"- {_when(each)}{_linked(each)}: {each.cause}: {_flat(each.what)}"
    if more := where_and_cost(each):
        yield f"    - {more}"
    yield f"    - done: {_flat(each.done)}"
    if each.todo:
        yield f"    - **to do: {_flat(each.todo)}**"
    if each.command:
        yield f"    - evidence: `{each.command}`"


def _linked(each: MorningItem) -> str:
    return f"[{each.subject}]({each.path})" if each.path else each.subject


def _when(each: MorningItem) -> str:
    return f"{incident_reports.when(each.at)}, " if each.at else ""


def _flat(value: str) -> str:
    return " ".join(value.split())
