"""Areas of the web: which URLs a part of a site means, in SQL as in a recipe's list of blocked URLs."""

import itertools
from pathlib import Path

import duckdb
import pytest

from slipway.assets.datasets.cleaning.origins import Origins
from slipway.assets.datasets.documents import takedowns
from slipway.assets.datasets.documents.takedowns import Takedown
from slipway.assets.datasets.reading.document import About
from slipway.recipes.filters import UrlsSection

pytestmark = pytest.mark.pure

URLS = (
    *("https://example.org/blog/", "https://example.org/blog", "http://EXAMPLE.org:8080/blog/2024/a.html?x=1#top"),
    *("https://example.org/blogger", "https://example.org/Blog/", "https://example.org", "https://www.example.org/"),
    *(
        "example.org/blog/a",
        "https://ada@example.org/blog?page=2",
        "https://notexample.org/blog/",
        "ftp://example.org./",
    ),
    *("https://other.example/?u=https://example.org/blog/", "https://[::1]/blog/", "mailto:ada", "/blog/", " "),
)
AREAS = ("https://example.org/blog/", "example.org/blog", "example.org", "https://EXAMPLE.org:443", "http://[::1]/")


def under(area: str, urls: tuple[str, ...] = URLS) -> set[str]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE pages AS SELECT unnest($urls) AS url", {"urls": list(urls)})
        rows = connection.execute(takedowns.urls_under("pages"), {"under": [area]}).fetchall()
    assert {area_of_row for _, area_of_row in rows} <= {area}
    return {url for url, _ in rows}


def test_an_area_means_the_page_and_what_is_below_it_and_no_other_name_that_begins_so():
    assert under("https://example.org/blog/") == {
        *("https://example.org/blog/", "https://example.org/blog", "http://EXAMPLE.org:8080/blog/2024/a.html?x=1#top"),
        *("example.org/blog/a", "https://ada@example.org/blog?page=2"),
    }


def test_a_domain_means_its_subdomains_too():
    assert under("example.org") >= {"https://www.example.org/", "https://example.org", "ftp://example.org./"}
    assert not under("example.org") & {"https://notexample.org/blog/", "mailto:ada", "/blog/"}
    assert "https://other.example/?u=https://example.org/blog/" not in under("example.org")


@pytest.mark.parametrize("area", AREAS)
def test_an_area_means_what_a_recipe_that_blocks_it_leaves_out(area: str):
    blocks = Origins(UrlsSection(blocked=(area,)), ())
    assert under(area) == {url for url in URLS if blocks.why_not(About(url=url))}


@pytest.mark.parametrize(
    "text", ["", "org", "/blog/", "https:///x", "https://e.org/?q=1", "https://e.org/*", "e.org x"]
)
def test_what_is_no_area_is_refused(text: str):
    with pytest.raises(ValueError, match=r"dataset texts: found .*, expected a domain or the beginning of URLs"):
        takedowns.require_area(text, "dataset texts")


@pytest.mark.parametrize("text", [*AREAS, "http://intranet/wiki/"])
def test_an_area_is_accepted(text: str):
    takedowns.require_area(text, "dataset texts")


def removed(*taken: Takedown, of_texts: bool = True) -> dict[int, str]:
    """Why each row of a table of documents is taken down."""
    rows = [("1" * 64, "9" * 64, "https://a.example/x/1"), ("2" * 64, "2" * 64, "https://a.example/y"), ("3" * 64,) * 3]
    with duckdb.connect() as connection:
        columns = ", ".join(f"{name} VARCHAR" for name in ("name", "identity", "whole", "url", "removed", "because"))
        connection.execute(f"CREATE TABLE live (row INT, number INT, {columns})")
        values = [(number, number, "pages.jsonl", *row, None, None) for number, row in enumerate(rows)]
        connection.executemany("INSERT INTO live VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        takedowns.remove(connection, taken, of_texts)
        live_rows = connection.execute(
            "SELECT row, because FROM live WHERE removed = 'takedown' ORDER BY row"
        ).fetchall()
    return dict(live_rows)


def takedown(why: str, *identities: str, url: str = "", under: str = "") -> Takedown:
    return Takedown(url, (), identities, why, "test", 1.0, under)


def test_documents_are_removed_by_text_by_url_and_by_area():
    assert removed(takedown("text", "2" * 64), takedown("area", under="a.example/x")) == {0: "area", 1: "text"}
    assert removed(takedown("whole", "9" * 64), takedown("url", url="https://a.example/y")) == {0: "whole", 1: "url"}
    assert removed() == removed(takedown("other", "4" * 64, url="https://a.example/")) == {}


def test_the_earliest_takedown_of_a_document_says_why_in_whichever_way_each_means_it():
    ways = (
        takedown("text", "1" * 64),
        takedown("url", url="https://a.example/x/1"),
        takedown("area", under="a.example/x/"),
        takedown("wider", under="a.example"),
    )
    for ordered in itertools.permutations(ways):
        assert removed(*ordered)[0] == ordered[0].why


def test_a_journal_has_areas_and_stays_as_it_was_without_one(tmp_path: Path):
    plain, area = takedown("text", "1" * 64), takedown("area", under="a.example")
    takedowns.add(tmp_path, [plain, area], "texts")
    takedowns.add(tmp_path, [area, takedown("area", under="b.example")], "texts")
    stored = takedowns.read(tmp_path, "texts")
    assert [takedown.under for takedown in stored] == ["", "a.example", "b.example"] and stored[:2] == [plain, area]
    assert b'"under"' not in takedowns.path(tmp_path, "texts").read_bytes().splitlines()[0]
    assert len({takedowns.digest_of(stored[:end]) for end in range(4)}) == 4
