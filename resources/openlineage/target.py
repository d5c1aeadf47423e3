"""Target of OpenLineage events: a file with one event per line, or an HTTP server.

Sending an event a second time changes nothing, since it has the same run, type and time. So a process that is killed
before it records an event simply sends it again.
"""

import json
import os
from pathlib import Path

import dagster as dg
from pydantic import Field

from slipway.resources import credentials, posting
from slipway.resources.credentials import PublicAddress
from slipway.resources.errors import Unavailable
from slipway.resources.openlineage.events import RunEvent
from slipway.trainer.base import atomic

SECONDS = 5.0
"""How long a server may take over one event."""


class OpenLineage(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The target of the events. If neither `url` nor `file` is set, no events are sent. No field holds a secret."""

    url: PublicAddress = Field(
        default="", description="URL that receives events, such as http://host:5000/api/v1/lineage"
    )
    file: str = Field(default="", description="File to which events are appended, one per line")
    key_file: str = Field(default="", description="File with the server's API key, sent as a bearer token")

    @property
    def is_wanted(self) -> bool:
        """Whether events are sent at all."""
        return bool(self.url or self.file)

    def send(self, event: RunEvent) -> None:
        """Send one event. Raises Unavailable if the target is away, and ValueError if it rejects the event."""
        if self.file:
            try:
                _append(Path(self.file), event)
            except OSError as error:
                raise Unavailable(f"{self.file}: {error}") from None
        else:
            posting.post(self.url, json.dumps(event).encode(), self._headers(), SECONDS, "an event")

    def _headers(self) -> dict[str, str]:
        if not self.key_file:
            return {}
        try:
            return {"Authorization": f"Bearer {credentials.read_header(Path(self.key_file))}"}
        except OSError as error:
            raise Unavailable(f"{self.url}: {error}") from None


def of_address(where: str) -> OpenLineage:
    """The target for one setting: a URL, a file, or "" for none."""
    return OpenLineage(url=where) if "://" in where else OpenLineage(file=where)


def _append(path: Path, event: RunEvent) -> None:
    """Append a line; first complete an incomplete last line of a killed process. Raises OSError."""
    atomic.make_folder(path.parent)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        line = (b"\n" if torn else b"") + json.dumps(event).encode() + b"\n"
        if os.write(descriptor, line) != len(line):
            raise OSError(28, "the disk is full")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
