"""A browser's window on an instance: opens pages of the UI, reads what is shown, and takes pictures of it.

It is Debian's Chromium, driven by Playwright: nothing is downloaded. Tests without it are skipped, with the reason.

    def test_a_page(window: Window, instance: Instance):
        window.open(f"{instance.url}/assets")
        window.until_shown("1 incident in 24 hours")
        window.picture("overview")
"""

import io
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import FloatRect, Page, Request, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT = 1360, 900
COLORS = 128
"""Of a picture, to keep it small."""
PATIENCE_SECONDS = 240.0
"""What a page may take until it shows something: its first one loads megabytes of scripts."""
LOADING = '[class*="Skeleton_skeleton"], [class*="Spinner_spinner"], .bp5-skeleton, .bp5-spinner-animation'
"""What Dagster's pages show in place of what they have not got yet."""
WHOLE_ROWS = """height => Math.max(0, ...[...document.querySelectorAll("tr, [role=row]")]
  .map(row => row.getBoundingClientRect()).filter(row => row.top < height && row.bottom > height)
  .map(row => Math.floor(row.top)))"""
"""Where the row begins that a window of this height shows in part; 0 where it shows none in part."""
LOOK_MILLISECONDS, LOOKS = 250, 4
"""A page is complete when so many looks, so far from one another, find that it waits for nothing."""
NO_BROWSER = f"found none of {', '.join(NAMES)} on the PATH, expected a browser: apt-get install chromium"


def program() -> str | None:
    """The browser's program; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Window:
    """One window; `pictures` is the folder for pictures of what it shows, None for none."""

    def __init__(self, page: Page, pictures: Path | None = None) -> None:
        self.page = page
        self._pictures = pictures
        self._pending_requests: set[Request] = set()
        """What scripts of the page have asked a server, and have no answer to."""
        page.on(
            "request",
            lambda request: self._pending_requests.add(request) if request.resource_type in ("fetch", "xhr") else None,
        )
        page.on("requestfinished", lambda request: self._pending_requests.discard(request))
        page.on("requestfailed", lambda request: self._pending_requests.discard(request))

    def open(self, url: str) -> None:
        """Show a page, with its scripts loaded."""
        self._pending_requests.clear()
        self.page.goto(url, wait_until="load")

    def until_shown(self, *texts: str) -> None:
        """Wait until a person can read each of these on the page; fails when one does not come into sight."""
        for text in texts:
            expect(self.page.get_by_text(text).filter(visible=True).first).to_be_visible(
                timeout=PATIENCE_SECONDS * 1000
            )

    def until_complete(self) -> None:
        """Wait until nothing on the page is loading: no place is held for content, and no answer is owed."""
        deadline, quiet_looks = time.monotonic() + PATIENCE_SECONDS, 0
        while quiet_looks < LOOKS:
            pending = self.pending()
            assert time.monotonic() < deadline, f"{self.page.url} still loads: {pending}"
            quiet_looks = 0 if pending else quiet_looks + 1
            self.page.wait_for_timeout(LOOK_MILLISECONDS)

    def pending(self) -> list[str]:
        """What the page waits for now: places held for content that are in sight, and requests without an answer."""
        n_placeholders = self.page.locator(LOADING).filter(visible=True).count()
        return [*(["content"] if n_placeholders else []), *(request.url for request in self._pending_requests)]

    def press(self, label: str) -> None:
        """Click the first button or link of this name that is in sight."""
        self.page.get_by_text(label, exact=True).filter(visible=True).first.click(timeout=PATIENCE_SECONDS * 1000)

    def follow(self, part: str) -> None:
        """Click the first link in sight whose address has this part."""
        link = self.page.locator(f'a[href*="{part}"]').filter(visible=True).first
        link.click(timeout=PATIENCE_SECONDS * 1000)

    def text(self) -> str:
        """All that can be read on the page now."""
        return self.page.locator("body").inner_text()

    def picture(self, name: str, height: int = HEIGHT, above: str = "") -> None:
        """Keep what a window of this height shows as `<name>.png`, once all of it is there; only where asked for.

        It ends where the page does, or above the first element that `above` selects: nothing is shown in part, and
        nothing that is empty. A page whose content is laid over its body has no such end, and fills the window, which
        is made lower where it would end within a row of a table.
        """
        if self._pictures is None:
            return
        self._pictures.mkdir(parents=True, exist_ok=True)
        self._make(height)
        if full_height := self.page.evaluate(WHOLE_ROWS, height):
            self._make(height := full_height)
        ends = self.page.locator(above).first.bounding_box() if above else None
        bottom = ends["y"] if ends else self.page.evaluate("document.body.getBoundingClientRect().bottom")
        clip = FloatRect(x=0, y=0, width=WIDTH, height=bottom if 1 <= bottom < height else height)
        with Image.open(io.BytesIO(self.page.screenshot(clip=clip))) as image:
            image.quantize(COLORS).save(self._pictures / f"{name}.png", optimize=True)
        self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})  # the next page is laid out for this one

    def _make(self, height: int) -> None:
        """Make the window so high, and wait until it shows the page from its top, with all of its content."""
        self.page.set_viewport_size({"width": WIDTH, "height": height})
        self.until_complete()
        self.page.evaluate("scrollTo(0, 0)")


@contextmanager
def opened(browser: str, pictures: Path | None = None) -> Iterator[Window]:
    """A window of a browser's program, with a profile of its own that goes with it."""
    with sync_playwright() as driver:
        # A container's root has no sandbox, and its /dev/shm is small.
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield Window(chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT}), pictures)
        finally:
            chromium.close()
