"""Settings of notifications: whom to tell, of what, and when.

On a cluster they are the section `notifications` of the platform's settings; of an embedded instance, the file
``notifications.yaml`` in its home, whose first line is ``slipway: notifications/1``. The addresses stand in a file of
their own, which `urls_file` names, as they hold passwords and tokens.
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
    """Steps were interrupted, a checkpoint was damaged, a tier or a node had a fault; the platform dealt with it."""
    PERSON = "person"
    """A person is needed."""
    FINISHED = "finished"
    """A training has done all its steps."""
    GATE = "gate"
    """A candidate did not pass its gate."""
    DISK = "disk"
    """A tier is nearly full."""
    DIGEST = "digest"
    """The morning after, as text."""


def _kind(value: object) -> NoticeKind:
    if value not in list(NoticeKind):
        raise ValueError(f"expected one of {', '.join(NoticeKind)}")
    return NoticeKind(str(value))


KindName = Annotated[NoticeKind, BeforeValidator(_kind), Field(json_schema_extra={"enum": list(NoticeKind)})]
"""The name of a kind of notice in the settings."""


class NotificationSettings(RecipeSection):
    """Whom to tell, of what, and when."""

    FORMAT: ClassVar = "notifications/1"

    urls_file: Text
    """The file of the addresses, one a line, as Apprise writes them: mailto://, slack://, json://; # begins a comment.
    Such as a mounted secret; a relative path is one in the home."""
    kinds: list[KindName] = Field(default=list(NoticeKind))
    """Which kinds are sent: incident, person, finished, gate, disk, digest."""
    quiet_hours: str = ""
    """HH:MM-HH:MM: what is not in `through_quiet_hours` waits until they end, and is then sent in one message."""
    through_quiet_hours: list[KindName] = Field(default=[NoticeKind.PERSON])
    """Which kinds are sent in the quiet hours too."""
    timezone: Text = "UTC"
    """Of the quiet hours, such as Europe/Berlin."""
    group_seconds: Annotated[float, Field(ge=0)] = 60.0
    """What happens within so long is sent in one message; that a person is needed is sent at once."""
    address: PublicAddress = ""
    """The webserver's, for links: https://slipway.example."""

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
        begin, end = time(int(hours[1]), int(hours[2])), time(int(hours[3]), int(hours[4]))
        now = datetime.fromtimestamp(at, zoneinfo.ZoneInfo(self.timezone)).time()
        return begin <= now < end if begin <= end else now >= begin or now < end


def of_home(home: Path) -> NotificationSettings | None:
    """The settings of an embedded instance; None where it has none. Raises InvalidRecipes."""
    path = home / FILE
    if not path.exists():
        return None
    settings = settings_file.load(
        path, NotificationSettings, NotificationSettings.FORMAT, "the settings of notifications"
    )
    return settings.model_copy(update={"urls_file": str(home / settings.urls_file)})
