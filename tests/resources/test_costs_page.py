"""The page of costs: who spent how much on what, on demand beside spot; and what it says where nothing is known."""

import datetime
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from slipway.resources.home import Home
from slipway.resources.pages import costs
from slipway.resources.pages.routes import routes
from slipway.resources.trainings.accounts import CostSubject, Prices
from slipway.resources.trainings.spending import InterruptionLine, Spending, SpentLine
from slipway.trainer.record.accounting import buckets
from tests.cli import homes

DAY, NEXT = datetime.date(2026, 11, 20), datetime.date(2026, 11, 21)
PRICES = Prices("EUR", on_demand=2.0, spot=0.5)
ALONE = CostSubject("tiny", "", None, "team:a", "schedule")
TRIAL = CostSubject("tiny", "search-0123", 7, "team:b", "sweep")
SPENT = Spending(
    DAY,
    (
        SpentLine("tiny-1", ALONE, False, DAY, buckets.STEPS, 30.0),
        SpentLine("tiny-1", ALONE, False, NEXT, buckets.REPEATED, 2.0),
        SpentLine("search-0123.7", TRIAL, True, NEXT, buckets.STEPS, 8.0),
    ),
    (InterruptionLine("tiny-1", ALONE, False, "node_lost", 2.5),),
)


def page(spending: Spending, prices: Prices | None = PRICES, days: int = 30) -> str:
    return costs.html(spending, days, prices)


def row(html: str, name: str) -> list[str]:
    """The cells of the row that begins with this name."""
    rows = [re.sub("<(?!/td)[^>]*>", "", line).split("</td>")[:-1] for line in html.splitlines() if "</td>" in line]
    [cells_of_row] = [cells for cells in rows if cells[0] == name]
    return cells_of_row


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("team:a", ["32.00", "-", "64.00", "64.00", "16.00"]),
        ("team:b", ["-", "8.00", "4.00", "16.00", "4.00"]),
        ("schedule", ["32.00", "-", "64.00", "64.00", "16.00"]),
        ("repeated steps", ["2.00", "-", "4.00", "4.00", "1.00"]),
        ("2026-11-21", ["2.00", "8.00", "8.00", "20.00", "5.00"]),
        ("search-0123.7", ["-", "8.00", "4.00", "16.00", "4.00"]),
        ("node lost", ["2.50", "-", "5.00", "5.00", "1.25"]),
    ],
)
def test_each_row_has_both_kinds_of_nodes_what_was_spent_and_what_it_would_have_been(name: str, cells: list[str]):
    assert row(page(SPENT), name)[1:-1] == cells


def test_the_page_leads_to_trainings_and_sweeps():
    html = page(SPENT)
    assert 'href="/slipway/trainings/tiny-1"' in html and 'href="/slipway/sweeps/search-0123"' in html


def test_without_prices_the_page_has_hours_and_says_where_prices_stand():
    html = page(SPENT, None)
    assert "EUR" not in html and "<code>costs.yaml</code>" in html
    assert row(html, "team:a")[1:-1] == ["32.00", "-"]


def test_a_long_table_ends_with_one_row_for_all_that_is_left():
    lines = tuple(replace(SPENT.lines[0], training=f"tiny-{number:03}") for number in range(costs.MOST + 2))
    assert row(page(replace(SPENT, lines=lines)), "2 more")[1:-1] == ["60.00", "-", "120.00", "120.00", "30.00"]


def test_a_few_seconds_are_not_shown_as_no_time():
    few = replace(SPENT, lines=(replace(SPENT.lines[0], rank_hours=0.001),))
    assert "<b>&lt;0.01</b>rank-hours" in page(few) and "<b>40.00</b>rank-hours" in page(SPENT)


def test_days_in_which_nothing_was_held_are_said_to_be_so():
    assert "No training used a GPU or processor" in page(Spending(DAY))


def test_names_are_no_markup():
    subject = replace(ALONE, team="<script>")
    html = page(replace(SPENT, lines=(replace(SPENT.lines[0], subject=subject),)))
    assert "&lt;script&gt;" in html and "<script>" not in html


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """A browser on a home with one training that runs."""
    monkeypatch.delenv("SLIPWAY_PLATFORM", raising=False)
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    homes.running(Home(tmp_path), "tiny")
    return TestClient(Starlette(routes=routes(Home(tmp_path).durable, dict)))


def test_the_page_is_served_with_the_prices_of_the_home(client: TestClient, tmp_path: Path):
    (tmp_path / "costs.yaml").write_text("slipway: costs/1\nprices: {currency: CHF, on_demand: 3, spot: 1}\n")
    answer = client.get("/slipway/costs?days=7")
    assert answer.status_code == 200 and "Costs of the last 7 days" in answer.text
    assert 'href="/slipway/costs"' in client.get("/slipway").text


def test_prices_that_cannot_be_read_are_told_with_their_line(client: TestClient, tmp_path: Path):
    (tmp_path / "costs.yaml").write_text("slipway: costs/1\nprices: {on_demand: cheap}\n")
    answer = client.get("/slipway/costs")
    assert answer.status_code == 404 and "costs.yaml" in answer.text and "on_demand" in answer.text


@pytest.mark.parametrize("days", ["", "0", "-1", "many", "1.5", "99999", "²"])
def test_a_number_of_days_that_is_none_is_refused_in_a_sentence(client: TestClient, days: Any):
    refused = client.get("/slipway/costs", params={"days": days})
    message = f"days: found {days!r}, expected a whole number from 1 to 3,660\n"
    assert (refused.status_code, refused.text) == (404, message)
