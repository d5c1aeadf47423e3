"""Notices: what people are notified of, from the report of a night, and how several become one message. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urljoin

from slipway.resources.daily_report import report as daily_report
from slipway.resources.daily_report.report import DailyReport, ReportItem
from slipway.resources.notify.settings import NoticeKind, NotificationSettings
from slipway.trainer.base.units import DAY

RECOVERY_SECONDS = 300.0
"""A notice of an incident is sent once the training has gone on, or after so long: then it says that it has not."""
AT_ONCE = 20
"""A message has at most so many notices; the rest are counted."""


@dataclass(frozen=True)
class Notice:
    """One thing to tell."""

    id: str
    """A notice is sent once for each id."""
    kind: NoticeKind
    title: str
    body: str
    at: float
    """When it happened, in seconds since the epoch."""


@dataclass(frozen=True)
class NoticeMessage:
    """What one endpoint is sent at once."""

    title: str
    body: str
    is_urgent: bool


def of_report(report: DailyReport) -> list[Notice]:
    """The notices of a night. That of an incident from which a training recovers comes later, with where it went on."""
    return [notice for item in report.items if (notice := _notice(item, report.until))]


def finished(training: str, recipe_path: str, at: float) -> Notice:
    """A training has done all its steps."""
    return Notice(
        f"finished.{training}.{at:.0f}",
        NoticeKind.FINISHED,
        f"{training} is finished",
        f"All steps are done.\nLink: {recipe_path}",
        at,
    )


def message(notices: Sequence[Notice]) -> NoticeMessage:
    """Several notices as one message, those that need a person first."""
    ordered = sorted(notices, key=lambda notice: (notice.kind is not NoticeKind.PERSON, notice.at))
    needed_count = sum(notice.kind is NoticeKind.PERSON for notice in notices)
    if len(ordered) == 1:
        [only] = ordered
        return NoticeMessage(f"Slipway: {only.title}", only.body, needed_count > 0)
    more = len(ordered) - AT_ONCE
    parts = [f"{notice.title}\n{notice.body}" for notice in ordered[:AT_ONCE]]
    parts += [f"and {more} more: slipway incidents --since 12h"] if more > 0 else []
    needed = f", {needed_count} need{'s' if needed_count == 1 else ''} a person" if needed_count else ""
    return NoticeMessage(f"Slipway: {len(ordered)} notices{needed}", "\n\n".join(parts), needed_count > 0)


def due(pending: Sequence[tuple[Notice, float]], settings: NotificationSettings, now: float) -> list[Notice]:
    """Which of the pending notices are to be sent now; each comes with when it was noted, seconds since the epoch.

    None during quiet hours but those of kinds that come through; none before the first of them is `group_seconds` old,
    unless a person is needed.
    """
    open_now = [
        (notice, noted)
        for notice, noted in pending
        if notice.kind in settings.kinds and (not settings.is_quiet(now) or notice.kind in settings.through_quiet_hours)
    ]
    is_urgent = any(notice.kind is NoticeKind.PERSON for notice, _ in open_now)
    is_old = any(noted <= now - settings.group_seconds for _, noted in open_now)
    return [notice for notice, _ in open_now] if is_urgent or is_old else []


def with_links(notice: Notice, address: str) -> str:
    """The body, whose link leads to the webserver; without an address there is no link."""
    lines = [_linked(line, address) for line in notice.body.splitlines()]
    return "\n".join(line for line in lines if line)


def _linked(line: str, address: str) -> str:
    if not line.startswith(_LINK):
        return line
    return f"{_LINK}{urljoin(address, line.removeprefix(_LINK))}" if address else ""


_LINK = "Link: "


def _notice(item: ReportItem, now: float) -> Notice | None:
    kind = _kind(item)
    if kind is None or (item.going and not item.todo and now - item.at < RECOVERY_SECONDS):
        return None
    id = f"person.{item.id}" if kind is NoticeKind.PERSON else item.id
    if kind is NoticeKind.DISK:
        id = f"{item.id}.{int(item.at // DAY)}"  # once a day while it lasts
    return Notice(id, kind, f"{item.subject}: {item.cause}", "\n".join(_lines(item)), item.at)


def _kind(item: ReportItem) -> NoticeKind | None:
    """None for what needs no notice: a restart, what waits for nobody."""
    if item.cause == "nearly full":
        return NoticeKind.DISK
    if item.todo:
        return NoticeKind.PERSON
    if item.topic == daily_report.GATE:
        return NoticeKind.GATE if item.cause == "gate rejection" else None
    return None if item.topic == daily_report.TRAINING else NoticeKind.INCIDENT


def _lines(item: ReportItem) -> Iterator[str]:
    yield f"What happened: {item.what}"
    if more := "; ".join(part for part in (item.where, item.cost) if part):
        yield f"Where, and what it cost: {more}"
    yield f"What was done: {item.done}"
    yield f"What to do: {item.todo or 'nothing'}"
    if item.command:
        yield f"Evidence: {item.command}"
    if item.path:
        yield f"{_LINK}{item.path}"
