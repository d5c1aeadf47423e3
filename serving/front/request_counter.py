"""Counts the texts of requests in the background. Texts that do not fit into the queue are left out, but counted.

The tokens are those of the version that has the traffic; the front reads that version's tokenizer from its export.
"""

import asyncio
import contextlib
import logging
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

from slipway.serving import request_statistics
from slipway.serving.api.texts import ServedTokenizer
from slipway.serving.records import ServedVersion
from slipway.serving.request_statistics import RequestRecords, TextCounts

WAITING = 64
SAVE_SECONDS = 30.0
END_SECONDS = 5.0
"""Seconds for counting the remaining texts when the front stops."""
log = logging.getLogger("slipway.serving")


class RequestCounter:
    """Counts the texts of one model's requests."""

    def __init__(self, durable: Path, model: str, version: Callable[[], ServedVersion | None]) -> None:
        """`version` returns the version that has the traffic."""
        self._durable = durable
        self._model = model
        self._version = version
        self._records = RequestRecords(durable, model)
        self._host = re.sub("[^A-Za-z0-9-]", "-", socket.gethostname())
        self._texts: asyncio.Queue[str] = asyncio.Queue(WAITING)
        self._left_out = self._offered = self._done = 0
        self._read: tuple[str, str, ServedTokenizer] | None = None
        """The export, tokenizer name and tokenizer of the version that was read last."""
        self._at = ("", "")
        """The day and the tokenizer of the current counts."""
        self._counts = TextCounts()
        self._saved = time.monotonic()

    @property
    def waiting(self) -> int:
        """The number of texts in the queue."""
        return self._offered - self._done

    def offer(self, text: str) -> None:
        """Queue the text of a request that was just answered."""
        if not text:
            return
        try:
            self._texts.put_nowait(text)
            self._offered += 1
        except asyncio.QueueFull:
            self._left_out += 1

    async def end(self) -> None:
        """Wait until all offered texts are counted, or for `END_SECONDS`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                while self.waiting:
                    await asyncio.sleep(0.02)

    async def run(self) -> None:
        """Count the offered texts until cancelled; save the counts regularly, and at the end."""
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    text = await asyncio.wait_for(self._texts.get(), SAVE_SECONDS)
                    await self._alone(self._count, text)
                    self._done += 1
                if time.monotonic() - self._saved > SAVE_SECONDS:
                    await self._alone(self._save)
        finally:
            with contextlib.suppress(OSError):
                self._save()

    async def _alone(self, act: Callable[..., None], *arguments: str) -> None:
        """Run `act` in a thread and log its errors, which must not affect the requests."""
        try:
            await asyncio.to_thread(act, *arguments)
        except (OSError, ValueError) as error:
            log.warning("model %s: its requests are not counted: %s", self._model, error)

    def _count(self, text: str) -> None:
        version = self._version()
        if version is None:
            return
        name, tokenizer = self._tokenizer(version)
        if self._at != (request_statistics.today(), name):
            self._save()
            self._at = (request_statistics.today(), name)
            self._counts = self._records.counts_of_day(*self._at, self._host)
            self._records.forget_old()
        self._counts.add(text, tokenizer.encode(text[: request_statistics.LONGEST]))

    def _tokenizer(self, version: ServedVersion) -> tuple[str, ServedTokenizer]:
        """The name and the tokenizer of a version. Raises OSError and ValueError."""
        if self._read is None or self._read[0] != version.folder:
            export = self._durable / version.folder
            self._read = (version.folder, request_statistics.tokenizer_of(export), ServedTokenizer(export))
        return self._read[1:]

    def _save(self) -> None:
        self._saved = time.monotonic()
        if self._at[0]:
            self._counts.left_out = self._counts.left_out + self._left_out
            self._left_out = 0
            self._records.keep(*self._at, self._host, self._counts)
