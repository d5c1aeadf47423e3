"""The pages as they are asked for over HTTP: the morning of any number of hours, and one sentence for a bad address."""

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from slipway.resources import html_layout
from slipway.resources.home import Home
from slipway.resources.mlflow.ledger_delivery import ShippedLedger
from slipway.resources.pages.routes import routes
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings
from tests.cli import homes


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    """A browser on an empty home."""
    return TestClient(Starlette(routes=routes(Home(tmp_path).durable, dict)))


def test_the_morning_page_has_the_trainings_that_finished_since(client: TestClient, tmp_path: Path):
    (Home(tmp_path).durable / "trainings").mkdir(parents=True)
    store = homes.ended(Home(tmp_path), "finished", "succeeded", "all steps done", 50)
    for address, is_there in {"/slipway/morning": True, "/slipway/morning?hours=0.0000001": False}.items():
        page = client.get(address)
        assert page.status_code == 200 and "Nothing to do" in page.text
        assert (store.id in page.text) is is_there


@pytest.mark.parametrize("hours", ["many", "0", "-1", "nan", "inf", ""])
def test_a_number_of_hours_that_is_none_is_refused_in_a_sentence(client: TestClient, hours: str):
    refused = client.get(f"/slipway/morning?hours={hours}")
    assert (refused.status_code, refused.text) == (404, f"hours: found {hours!r}, expected a number above 0\n")


def test_the_index_leads_to_the_morning(client: TestClient):
    assert 'href="/slipway/morning"' in client.get("/slipway").text


def test_an_empty_index_says_what_to_do_for_each_kind(client: TestClient):
    page = client.get("/slipway").text
    for sentence in (
        "No training yet. To start one and follow it: slipway run RECIPE --watch",
        "No sweep yet. ",
        "No dataset yet. To build one: slipway data build",
    ):
        assert sentence in page


def test_the_index_says_where_each_training_stands_and_what_each_page_has(client: TestClient, tmp_path: Path):
    home = Home(tmp_path)
    ended = homes.ended(home, "finished", "succeeded", "all steps done", 100)
    offered, stopped = homes.offered(home, "offered"), homes.ended(home, "by-hand", "stopped", "asked to stop", 50)
    sweep = home.durable / "sweeps" / "tiny-1" / "report.html"
    sweep.parent.mkdir(parents=True)
    sweep.write_text(html_layout.page("complete, 8 of 8 trials ended: sweep tiny-1", ["<h1>Sweep</h1>"]))
    page = client.get("/slipway").text
    sentences = {
        ended.id: "Finished at step 100 of 100",
        offered.id: "Offered, not started: to start it, slipway run offered, or materialise it in Dagster",
        stopped.id: "Stopped at 50 of 100: resume goes on from step 50",
    }
    for id, sentence in sentences.items():
        assert f'<a href="/slipway/trainings/{id}">' in page and f"<td>{sentence}</td>" in page
    assert '<a href="/slipway/sweeps/tiny-1">tiny-1</a></td><td>complete, 8 of 8 trials ended</td>' in page


def test_a_page_that_is_kept_as_a_file_has_links_when_a_server_shows_it(client: TestClient, tmp_path: Path):
    report = Home(tmp_path).durable / "datasets" / "texts" / "report.html"
    report.parent.mkdir(parents=True)
    report.write_text(html_layout.page("Dataset texts", ["<h1>Dataset texts</h1>"]))
    assert "<nav" not in report.read_text()
    assert '<a href="/slipway">All pages</a>' in client.get("/slipway/datasets/texts").text


def test_a_training_s_page_links_to_its_run_in_mlflow_to_those_beside_it_and_to_its_sweep(tmp_path: Path):
    home = Home(tmp_path)
    run_policy = RunPolicy(1, 2, 1, 60.0, 3, origin={"sweep": "alone-1", "trial": "4"})
    store = Trainings(home.durable / "trainings").propose(Specification("alone", {}, "0" * 64, "1" * 64), run_policy)
    ShippedLedger(run="0f", experiment="7").save(store)
    served = TestClient(Starlette(routes=routes(home.durable, dict, "https://mlflow.example/")))
    page = served.get(f"/slipway/trainings/{store.id}").text
    assert '<a href="https://mlflow.example/#/runs/0f">its run in MLflow</a>' in page
    others = "https://mlflow.example/#/experiments/7/runs?workflowType=machine_learning"
    assert f'<a href="{others}">all trainings of its recipe in MLflow' in page
    assert '<a href="/slipway/sweeps/alone-1">its sweep</a>' in page


def test_the_morning_leads_to_all_pages_and_to_each_training_that_finished(client: TestClient, tmp_path: Path):
    store = homes.ended(Home(tmp_path), "finished", "succeeded", "all steps done", 50)
    page = client.get("/slipway/morning").text
    assert '<a href="/slipway">All pages</a>' in page and f'<a href="/slipway/trainings/{store.id}">' in page
    assert "<p>Nothing waits for a person; 0 incidents" in page
