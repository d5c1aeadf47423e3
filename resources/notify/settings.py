"""Notification settings: who is notified, of what, and when.

On a cluster they are the section `notifications` of the platform's settings. An embedded instance reads them from the
file ``notifications.yaml`` in its home, whose first line is ``slipway: notifications/1``. The addresses are in a
separate file, which `urls_file` names, since they hold passwords and tokens.
"""

import enum
import re
import zoneinfo
from datetime import datetime, time
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, field_validator

from slipway.recipes.parts import RecipeSection, Text
from slipway.resources import settings_file
from slipway.resources.credentials import PublicAddress

FILE = "notifications.yaml"
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


class NoticeKind(enum.StrEnum):
    """What a notice is about."""

    INCIDENT = "incident"
    """An interrupted training, a damaged checkpoint, or a faulty tier or node, which the platform handled."""
    PERSON = "person"
    """A person must do something."""
    FINISHED = "finished"
    """A training has completed all its steps."""
    GATE = "gate"
    """A candidate did not pass its gate."""
    DISK = "disk"
    """A tier is nearly full."""
    DIGEST = "digest"
    """The daily report as text."""


def _kind(value: object) -> NoticeKind:
    if value not in list(NoticeKind):
        raise ValueError(f"expected one of {', '.join(NoticeKind)}")
    return NoticeKind(str(value))


KindName = Annotated[NoticeKind, BeforeValidator(_kind), Field(json_schema_extra={"enum": list(NoticeKind)})]
"""A settings field for a kind of notice."""


class NotificationSettings(RecipeSection):
    """Who is notified, of what, and when."""

    FORMAT: ClassVar = "notifications/1"

    urls_file: Text
    """The file with the addresses, such as a mounted Secret. It has one Apprise URL per line (mailto://, slack://,
    json://); # begins a comment. A relative path starts at the home."""
    kinds: list[KindName] = Field(default=list(NoticeKind))
    """The kinds of notices to send: incident, person, finished, gate, disk, digest."""
    quiet_hours: str = ""
    """HH:MM-HH:MM. Kinds that are not in `through_quiet_hours` wait until the end, and are then sent in one message."""
    through_quiet_hours: list[KindName] = Field(default=[NoticeKind.PERSON])
    """The kinds of notices that are also sent during the quiet hours."""
    timezone: Text = "UTC"
    """The time zone of the quiet hours, such as Europe/Berlin."""
    group_seconds: Annotated[float, Field(ge=0)] = 60.0
    """Events within this time are sent in one message. A notice that needs a person is sent at once."""
    address: PublicAddress = ""
    """The address of the webserver, for links in messages, such as https://slipway.example."""

    @field_validator("quiet_hours")
    @classmethod
    def _are_hours(cls, text: str) -> str:
        if text and not _HOURS.fullmatch(text):
            raise ValueError("expected HH:MM-HH:MM, such as 22:00-07:00, or nothing")
        return text

    @field_validator("timezone")
    @classmethod
    def _is_timezone(cls, name: str) -> str:
        try:
            zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("expected the name of a time zone, such as UTC or Europe/Berlin") from None
        return name

    def is_quiet(self, at: float) -> bool:
        """Whether a moment, in seconds since the epoch, lies in the quiet hours."""
        hours = _HOURS.fullmatch(self.quiet_hours)
        if hours is None:
            return False
        begin = time(int(hours[1]), int(hours[2]))
        end = time(int(hours[3]), int(hours[4]))
        now = datetime.fromtimestamp(at, zoneinfo.ZoneInfo(self.timezone)).time()
        if begin <= end:
            return begin <= now < end
        return now >= begin or now < end


def of_home(home: Path) -> NotificationSettings | None:
    """The settings of an embedded instance, or None. Raises InvalidRecipes."""
    path = home / FILE
    if not path.exists():
        return None
    settings = settings_file.load(
        path, NotificationSettings, NotificationSettings.FORMAT, "the settings of notifications"
    )
    return settings.model_copy(update={"urls_file": str(home / settings.urls_file)})
