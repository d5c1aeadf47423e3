"""The pages as they are asked for over HTTP: the morning of any number of hours, and one sentence for a bad address."""

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from resources.home import Home
from resources.pages.routes import routes
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
        assert page.status_code == 200 and "Nobody is needed" in page.text
        assert (store.id in page.text) is is_there


@pytest.mark.parametrize("hours", ["many", "0", "-1", "nan", "inf", ""])
def test_a_number_of_hours_that_is_none_is_refused_in_a_sentence(client: TestClient, hours: str):
    refused = client.get(f"/slipway/morning?hours={hours}")
    assert (refused.status_code, refused.text) == (404, f"hours: found {hours!r}, expected a number above 0\n")


def test_the_index_leads_to_the_morning(client: TestClient):
    assert 'href="/slipway/morning"' in client.get("/slipway").text
