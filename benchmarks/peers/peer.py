"""Asked: questions put to the pages of a platform that has never heard of them, in a real browser.

Nobody walks a peer's pages by hand. All of them are opened, each with the clicks that it takes from the peer's first
page, and a question counts as answered where one of them, of the question's own subject, shows what answers it: its
text has the words (`answer` in benchmarks/cases/questions.json, in any wording), or it draws the curve. The page of
the fewest clicks is opened once more, which gives the seconds.
"""

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Error

from slipway.trainer.base import proxy_bypass
from tests.browser.window import Window
from tests.conftest import until

SETTLED_SECONDS = 8.0
"""A page that goes on asking its server is read after so long."""
ANSWER_SECONDS, GREETING_SECONDS = 30.0, 8.0
PLOTS = "canvas, .js-plotly-plot"


@dataclass(frozen=True)
class PeerPage:
    """A page of a peer."""

    name: str
    address: str
    clicks: int
    """From the peer's first page."""
    about: frozenset[str]
    """The subjects whose questions it may answer."""
    press: Sequence[str] = ()
    """What is clicked on it: selectors."""
    typed: str = ""
    """What is typed where it filters, in the field that a placeholder calls a filter."""
    greeting: str = ""
    """What closes a greeting that is shown once, where there is one: a selector."""


@dataclass(frozen=True)
class ShownPage:
    """What a page showed."""

    page: PeerPage
    text: str
    plots: int


@dataclass(frozen=True)
class PeerAnswer:
    """How a peer answered a question."""

    answered: bool
    clicks: int = 0
    seconds: float = 0.0
    page: str = ""

    @property
    def line(self) -> dict[str, Any]:
        """As a line of the benchmark has it."""
        answer = {"answered": self.answered}
        return (
            {**answer, "clicks": self.clicks, "seconds": self.seconds, "page": self.page} if self.answered else answer
        )


@dataclass
class Peer:
    """A platform alone, with its pages, which are opened once."""

    name: str
    pages: Sequence[PeerPage]
    substitutions: Mapping[str, str] = field(default_factory=dict)
    """What stands in the questions for what only this home has, such as the number of the best trial."""
    shown_pages: list[ShownPage] = field(default_factory=list)

    def look(self, window: Window) -> None:
        """Open every page."""
        self.shown_pages = [_settled_page(window, page) for page in self.pages]

    def answer(self, window: Window, question: Mapping[str, Any]) -> PeerAnswer:
        """Whether a page answers the question, and what it takes."""
        able = [
            candidate
            for candidate in self.shown_pages
            if question["about"] in candidate.page.about and self._is_answered(question, candidate)
        ]
        if not able:
            return PeerAnswer(False)
        page = min(able, key=lambda candidate: candidate.page.clicks).page
        begun = time.perf_counter()
        try:
            _open(window, page)
            until(lambda: self._is_answered(question, _now(window, page)), str(question["asked"]), ANSWER_SECONDS)
        except (Error, AssertionError):
            return PeerAnswer(False)
        return PeerAnswer(True, page.clicks, round(time.perf_counter() - begun, 3), page.name)

    def _is_answered(self, question: Mapping[str, Any], page: ShownPage) -> bool:
        pattern = str(question["answer"])
        for name, value in self.substitutions.items():
            pattern = pattern.replace(f"<{name}>", value)
        return re.search(pattern, page.text, re.IGNORECASE) is not None and ("seen" not in question or page.plots > 0)


def answers(url: str) -> bool:
    """Whether a peer's server answers at this address."""
    try:
        with proxy_bypass.opener(url).open(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _settled_page(window: Window, page: PeerPage) -> ShownPage:
    _open(window, page)
    deadline, text = time.monotonic() + SETTLED_SECONDS, ""
    while time.monotonic() < deadline:
        window.page.wait_for_timeout(1000)
        now = _now(window, page)
        if now.text and now.text == text:
            break
        text = now.text
    return _now(window, page)


def _open(window: Window, page: PeerPage) -> None:
    window.page.goto("about:blank")  # an address that differs in its fragment alone would not be read again
    window.open(page.address)
    if page.greeting:
        with contextlib.suppress(Error):
            window.page.locator(page.greeting).first.click(timeout=GREETING_SECONDS * 1000)
    for selector in page.press:
        window.page.locator(selector).first.click(timeout=ANSWER_SECONDS * 1000)
    if page.typed:
        window.page.locator("input[placeholder*=ilter]").first.fill(page.typed, timeout=ANSWER_SECONDS * 1000)


def _now(window: Window, page: PeerPage) -> ShownPage:
    return ShownPage(page, window.text(), window.page.locator(PLOTS).filter(visible=True).count())
