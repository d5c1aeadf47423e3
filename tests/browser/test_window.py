"""A picture is taken only once the page has all of its content."""

import contextlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import dagster as dg
import pytest
from PIL import Image
from playwright.sync_api import Error, Route, expect

from tests.browser import window as browser
from tests.browser.window import Window
from tests.cli import homes
from tests.drills import small_recipes
from tests.operations import webserver

PATIENCE = 300_000
PAGE = """\
<!doctype html><title>A page</title><style>body { margin: 0; background: red }</style>
<div class="Skeleton_skeleton__x" style="height: 100px"></div>
<script>
fetch("/content").then(() => setTimeout(() => {
  document.querySelector("div").remove(); document.body.style.background = "rgb(0, 0, 255)";
}, 700))
</script>
"""


@pytest.fixture
def slow_page() -> Iterator[tuple[str, Event]]:
    """A page whose content comes when the event is set, and is shown a little later; with its address."""
    may_come = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/content":
                may_come.wait()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, format: str, *values: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", may_come
        may_come.set()
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_picture_waits_for_an_answer_and_for_what_is_made_of_it(slow_page: tuple[str, Event], tmp_path: Path):
    url, may_come = slow_page
    program = browser.program()
    if program is None:
        pytest.skip(browser.NO_BROWSER)
    with browser.opened(program, tmp_path) as window:
        window.open(url)
        expect(window.page.locator("div")).to_be_visible(timeout=PATIENCE)
        assert window.pending() == ["content", f"{url}content"]
        window.page.once("console", lambda _: may_come.set())
        window.page.evaluate("setTimeout(() => console.log('the picture waits'), 300)")
        window.picture("page")
    with Image.open(tmp_path / "page.png") as taken:
        assert taken.convert("RGB").getpixel((5, 5)) == (0, 0, 255)


@pytest.mark.slow
def test_a_picture_of_a_page_that_fills_the_window_ends_between_two_rows(tmp_path: Path):
    program = browser.program()
    if program is None:
        pytest.skip(browser.NO_BROWSER)
    rows = "".join(f"<tr><td style='height: 70px'>{number}" for number in range(20))
    style = "<style>body { margin: 0 } div { position: fixed; inset: 0; overflow: auto }</style>"
    with browser.opened(program, tmp_path) as window:
        window.page.set_content(f"<!doctype html>{style}<div><table style='border-spacing: 0'>{rows}</table></div>")
        row = window.page.locator("tr").first.bounding_box()
        assert row is not None and 400 % row["height"] != 0
        window.picture("rows", height=400)
    with Image.open(tmp_path / "rows.png") as taken:
        assert taken.height == 400 - 400 % row["height"]


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_what_dagster_shows_in_place_of_content_is_known(tmp_path: Path, window: Window):
    home, routes, may_come = homes.home(tmp_path / "home"), list[Route](), Event()
    (tmp_path / "dagster").mkdir()
    with (
        dg.instance_for_test(webserver.OVERRIDES, temp_dir=str(tmp_path / "dagster")) as instance,
        webserver.served(instance, tmp_path, small_recipes.write(tmp_path, 40), home.root) as server,
        webserver.listening(server) as url,
    ):
        window.open(f"{url}/runs")
        window.until_shown("Runs")
        window.until_complete()
        window.page.route("**/graphql*", lambda route: route.continue_() if may_come.is_set() else routes.append(route))
        window.page.get_by_text("Catalog", exact=True).first.click(timeout=PATIENCE)
        expect(window.page.locator(browser.LOADING).filter(visible=True).first).to_be_visible(timeout=PATIENCE)
        assert "content" in window.pending()
        may_come.set()
        for route in routes:
            with contextlib.suppress(Error):  # the page may have given up a question
                route.continue_()
        window.until_complete()
