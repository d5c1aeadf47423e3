"""Notices: what people are notified of, taken from the daily report, and how several become one message. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urljoin

from slipway.resources.daily_report import report as daily_report
from slipway.resources.daily_report.report import DailyReport, ReportItem
from slipway.resources.notify.settings import NoticeKind, NotificationSettings
from slipway.trainer.base.units import DAY

RECOVERY_SECONDS = 300.0
"""A notice of an incident waits until the training has recovered, but at most this long."""
AT_ONCE = 20
"""The maximum number of notices in a message; it only counts the others."""


@dataclass(frozen=True)
class Notice:
    """One event of which people are notified."""

    id: str
    """Each id is sent only once."""
    kind: NoticeKind
    title: str
    body: str
    at: float
    """When it happened, in seconds since the epoch."""


@dataclass(frozen=True)
class NoticeMessage:
    """One message to an endpoint."""

    title: str
    body: str
    is_urgent: bool


def of_report(report: DailyReport) -> list[Notice]:
    """The notices of a report. While a training recovers from an incident, its notice waits, so that it can say at
    which step the training went on."""
    notices = [_notice(item, report.until) for item in report.items]
    return [notice for notice in notices if notice is not None]


def finished(training: str, recipe_path: str, at: float) -> Notice:
    """The notice that a training has completed all its steps."""
    return Notice(
        f"finished.{training}.{at:.0f}",
        NoticeKind.FINISHED,
        f"{training} is finished",
        f"The training has completed all its steps.\nLink: {recipe_path}",
        at,
    )


def message(notices: Sequence[Notice]) -> NoticeMessage:
    """Several notices as one message; notices that need a person come first."""
    ordered = sorted(notices, key=lambda notice: (notice.kind is not NoticeKind.PERSON, notice.at))
    needed_count = sum(notice.kind is NoticeKind.PERSON for notice in notices)
    if len(ordered) == 1:
        [only] = ordered
        return NoticeMessage(f"Slipway: {only.title}", only.body, needed_count > 0)
    more = len(ordered) - AT_ONCE
    parts = [f"{notice.title}\n{notice.body}" for notice in ordered[:AT_ONCE]]
    if more > 0:
        parts.append(f"and {more} more: slipway incidents --since 12h")
    title = f"Slipway: {len(ordered)} notices"
    if needed_count:
        title += f", {needed_count} need{'s' if needed_count == 1 else ''} a person"
    return NoticeMessage(title, "\n\n".join(parts), needed_count > 0)


def due(pending: Sequence[tuple[Notice, float]], settings: NotificationSettings, now: float) -> list[Notice]:
    """The pending notices to send now; each comes with the time at which it was noted, in seconds since the epoch.

    During quiet hours, only the kinds in `through_quiet_hours` are sent. Nothing is sent before the oldest notice is
    `group_seconds` old, unless a notice needs a person.
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
    """The body with a link to the webserver at `address`; without an address, the link is left out."""
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
        id = f"{item.id}.{int(item.at // DAY)}"  # one notice per day while the tier is nearly full
    return Notice(id, kind, f"{item.subject}: {item.cause}", "\n".join(_lines(item)), item.at)


def _kind(item: ReportItem) -> NoticeKind | None:
    """The kind of the notice; None for an item that needs none, such as a restart."""
    if item.cause == "nearly full":
        return NoticeKind.DISK
    if item.todo:
        return NoticeKind.PERSON
    if item.topic == daily_report.GATE:
        return NoticeKind.GATE if item.cause == "gate rejection" else None
    return None if item.topic == daily_report.TRAINING else NoticeKind.INCIDENT


def _lines(item: ReportItem) -> Iterator[str]:
    yield f"What happened: {item.what}"
    details = [part for part in (item.where, item.cost) if part]
    if details:
        yield f"Where, and what it cost: {'; '.join(details)}"
    yield f"What was done: {item.done}"
    yield f"What to do: {item.todo or 'nothing'}"
    if item.command:
        yield f"Evidence: {item.command}"
    if item.path:
        yield f"{_LINK}{item.path}"
