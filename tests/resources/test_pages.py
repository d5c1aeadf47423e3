"""Pages: whole without anything from elsewhere, small for any training, with the same sections when renewed."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import MappingProxyType

import pytest

from slipway.resources import html_layout
from slipway.resources.pages import training
from slipway.resources.pages.reading import IncidentLine, RareParts, TrainingView, differences, flat
from slipway.resources.trainings.metric_series import CurveFold
from slipway.resources.trainings.status import TrainingStatus

pytestmark = pytest.mark.pure
NOTHING = RareParts()
STANDS = TrainingStatus("running", "running, step 9 of 10, 1 s left", 9, 10, 8, 1, ("node-0",), 1.0, 2.5, 2.4, 8)


def view(steps: int = 9, failure: str = "", rare: RareParts = NOTHING) -> TrainingView:
    fold = CurveFold()
    more = {"learning_rate": 1e-3, "gradient_norm": 1.234567, "tokens_per_second": 12345.678, "mfu": 0.4567}
    for n in range(1, steps + 1):
        fold.add([{"event": "step", "t": float(n), "step": n, "loss": 7.654321 / n, **more}], "000001.0000", "rank-0")
    stands = STANDS if not failure else TrainingStatus("failed", failure, 9, 10, 8, 1, ())
    return TrainingView("tiny-0", "tiny", "tiny, 1 Jan", "snapshot", Path("/tier/tiny-0"), 100.0, stands, fold, rare)


class Outline(HTMLParser):
    """What a person who cannot see relies on: landmarks, names, and headings in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def outline(page: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Outline()
    parser.feed(page)
    return parser.tags


def test_the_page_needs_nothing_from_elsewhere():
    page = training.html(view())
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page) and "@import" not in page
    assert page.count("<script") == 2 and "uPlot" in page


def test_the_page_of_a_million_steps_is_far_below_a_megabyte():
    assert len(training.html(view(steps=20_000)).encode()) < 250_000


def test_the_page_has_landmarks_a_language_and_a_name_for_everything_that_is_drawn():
    tags = outline(training.html(view(), served=True))
    names = [tag for tag, _ in tags]
    assert {"main", "header", "nav", "h1"} <= set(names) and names.count("h1") == names.count("main") == 1
    assert next(attributes for tag, attributes in tags if tag == "html")["lang"] == "en"
    drawn = [attributes for _, attributes in tags if attributes.get("role") == "img"]
    assert len(drawn) == 5 and all("from" in str(attributes["aria-label"]) for attributes in drawn)
    labelled = {attributes["aria-labelledby"] for _, attributes in tags if "aria-labelledby" in attributes}
    assert labelled <= {attributes.get("id") for _, attributes in tags}


def test_what_a_page_replaces_are_sections_that_it_has():
    page, renewed = training.html(view(), served=True), training.renewal(view())
    assert all(f'id="{name}"' in page for name in renewed["sections"])
    assert renewed["live"] and 'data-live="1" data-served="1"' in page
    assert renewed["title"].startswith("running: tiny, 1 Jan")


def test_reasons_are_text_and_never_markup():
    page = training.html(view(failure="failed: <script>alert(1)</script>"))
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page


def test_incidents_the_champion_s_difference_and_the_seconds_are_tables():
    line = IncidentLine(10.0, "rank 1 was killed", "12 s", "restarted", "over", "/assets/x")
    rare = RareParts({"steps": 9.0, "restart": 1.0}, (line,), (), {"a.b": "2"}, {"a.b": "1"}, "tiny version 3")
    page = training.html(view(rare=rare))
    for cell in ("rank 1 was killed", "12 s", "Compared with the champion: tiny version 3", "90.0%"):
        assert cell in page


def test_a_row_of_sentences_names_its_columns_for_a_phone_that_has_them_below_one_another():
    line = IncidentLine(10.0, "rank 1 was killed", "12 s", "restarted", "over", "/assets/x")
    cells = [
        attributes["data-column"]
        for tag, attributes in outline(training.html(view(rare=RareParts(incidents=(line,)))))
        if tag == "td" and "data-column" in attributes
    ]
    assert cells == ["when", "what", "cost", "done", "state"]


def test_a_configuration_is_compared_value_by_value():
    own, other = flat({"run": {"steps": 10, "seed": 0}}), flat(MappingProxyType({"run": {"steps": 20, "seed": 0}}))
    assert differences(own, other) == [("run.steps", "10", "20")]


def test_a_page_that_was_opened_before_the_first_step_gets_its_curves_too():
    before, after = training.html(view(steps=0), served=True), training.renewal(view())
    assert 'id="figures"' in before and "No step has been completed yet." in before and "curve-loss" not in before
    assert 'id="curve-loss"' in after["places"] and "No step has been completed yet." not in after["places"]


def test_a_page_that_is_a_file_links_to_no_server():
    line = IncidentLine(10.0, "rank 1 was killed", "12 s", "restarted", "over", "/assets/x")
    as_file, served = (
        training.html(view(rare=RareParts(incidents=(line,))), served=is_served) for is_served in (False, True)
    )
    assert 'href="/' not in as_file and '<a href="/assets/x">rank 1 was killed</a>' in served


def test_every_figure_is_reported_with_its_unit_and_of_which_step_it_is():
    stands = replace(STANDS, figures=(("tokens_per_second", 12345.0), ("learning_rate", 1e-3)))
    ended = replace(stands, state="stopped", summary="stopped at 9 of 10: resume goes on from step 8")
    for standing, when in ((stands, "now"), (ended, "at step 9")):
        page = training.html(replace(view(), status=standing))
        for tile in (f"2.5</b>nats per token, loss {when}", f"12,345</b>tokens/s {when}", "start 1</b>on node-0"):
            assert tile in page, tile


def test_what_bounds_its_speed_is_reported_while_it_runs_and_before_that_when_it_will_be():
    early, late = view(steps=3), view(steps=30)
    late.fold.add(
        [{"event": "bound", "t": 31.0, "recommendation": "12% of the time goes into X."}], "000001.0000", "rank-0"
    )
    assert "This page will show from step 11 on what limits the speed." in training.html(early)
    assert "Speed limit: 12% of the time goes into X." in training.html(late)
    ended = replace(late, status=TrainingStatus("finished", "finished at step 10 of 10", 10, 10, 8, 1, ()))
    assert "Speed limit" not in training.html(ended) and "goes into X" not in training.html(ended)


def test_a_command_in_a_sentence_is_code_and_never_markup():
    assert html_layout.worded("then `slipway resume <b>`") == "then <code>slipway resume &lt;b&gt;</code>"
