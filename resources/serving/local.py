"""Local serving: one front for the durable tier, which starts its workers itself.

It outlives the process that starts it, and ends by itself once no model should be served.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlparse

from slipway.resources.errors import Unavailable
from slipway.resources.launchers.local import local_process
from slipway.serving.records import ServingRecords
from slipway.trainer.base import lock

PORT = "SLIPWAY_SERVE_PORT"
"""The variable with the port of the front; 0 for any free port. By default the last port, or 8000, or any free port."""
DEFAULT_PORT = 8000
LOG = "front.log"


class LocalServing:
    """The front of an embedded instance."""

    precision: ClassVar[str] = "fp32"
    image: ClassVar[str] = ""

    def __init__(self, code: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._code = code
        self._environ = environ

    def ensure(self, records: ServingRecords) -> None:
        """Start the front unless it runs. Raises Unavailable, with the path of its log."""
        wishes = [records.state(model).desired for model in records.models()]
        if not any(wish is not None and wish.want == "serve" for wish in wishes) or runs(records):
            return
        module = ["slipway.serving", "--durable", str(records.durable), "--detach", *self._port(records)]
        local_process.start_detached(
            module, records.folder / LOG, self._code, self._environ, "the front of served models"
        )

    def _port(self, records: ServingRecords) -> list[str]:
        """The port options of the front. Raises Unavailable for an invalid port."""
        setting = self._environ.get(PORT)
        if setting is None:
            before = records.front()
            return ["--port", str(urlparse(before.url).port if before else DEFAULT_PORT), "--or-any-port"]
        if not setting.isdecimal() or int(setting) > 65535:
            raise Unavailable(f"{PORT}: found {setting!r}, expected a port from 1 to 65535, or 0 for any free one")
        return ["--port", setting]


def runs(records: ServingRecords) -> bool:
    """Whether a front of the durable tier runs on this machine."""
    try:
        with lock.at_once(records.folder):
            return False
    except lock.LockHeld:
        return True
