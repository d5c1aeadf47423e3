"""A person opens a training's page before its first step, and sees its curves appear without touching anything."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import expect
from starlette.applications import Starlette

from slipway.resources.home import Home
from slipway.resources.pages.routes import routes
from slipway.trainer.record import fence, ledger
from tests.browser.window import Window
from tests.cli import homes
from tests.conftest import until
from tests.embedded.slipway import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PATIENCE = 60_000
CUT_OFF = """
  globalThis.drawn = []; globalThis.cutOff = [];
  const draws = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, ...more) {
    const wide = this.measureText(text).width, sides = {left: 0, start: 0, center: 0.5, right: 1, end: 1};
    const left = x - sides[this.textAlign] * wide;
    drawn.push(text);
    if (this.getTransform().b === 0 && (left < 0 || left + wide > this.canvas.width)) cutOff.push(text);
    return draws.call(this, text, x, ...more);
  };
"""
"""Keeps what is written on canvases, and which of it does not fit on them."""
PHONE = 390
"""The width of a phone, in pixels."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return homes.home(tmp_path)


@pytest.fixture
def url(home: Home) -> Iterator[str]:
    """The pages of the home, served."""
    port = free_port()
    app = Starlette(routes=routes(home.durable, dict))
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started, "the pages are served")
    yield f"http://127.0.0.1:{port}/slipway"
    server.should_exit = True
    thread.join()


def test_curves_appear_on_a_page_that_was_opened_before_the_first_step(url: str, home: Home, window: Window):
    store = homes.running(home, "early")
    window.page.add_init_script(CUT_OFF)
    window.open(f"{url}/trainings/{store.id}")
    window.until_shown("No step has been completed yet.")
    for step in range(1, 9):
        figures = {"loss": 8.0 / step, "learning_rate": 1.1e-4 * step, "seconds": 0.1}
        ledger.note(store.folder, fence.Token(1), "rank-0", "step", step=step, **figures)
    ledger.note(store.folder, fence.Token(1), "rank-0", "started", step=8, incarnation=1, generation=1)
    expect(window.page.locator("#curve-loss canvas")).to_be_visible(timeout=PATIENCE)
    expect(window.page.locator("#curve-learning_rate canvas")).to_be_visible(timeout=PATIENCE)
    until(lambda: "restart" in window.page.evaluate("drawn"), "the last step is marked")
    assert window.page.evaluate("cutOff") == []
    expect(window.page.get_by_text("No step has been completed yet.")).to_have_count(0, timeout=PATIENCE)


def test_no_page_makes_a_phone_scroll_to_the_side(url: str, home: Home, window: Window):
    failed = homes.ended(home, "a-recipe-with-a-rather-long-name", "failed", "it diverged", 50, 75)
    window.page.set_viewport_size({"width": PHONE, "height": 800})
    for path in ("", "/morning", f"/trainings/{failed.id}"):
        window.open(f"{url}{path}")
        window.until_shown(failed.id)
        assert window.page.evaluate("document.documentElement.scrollWidth") <= PHONE, path
