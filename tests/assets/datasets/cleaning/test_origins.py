"""Origins: documents are left out by their URLs and by their licences."""

from pathlib import Path

import pytest

from slipway.assets.datasets.cleaning.origins import LICENSE, URL, Origins
from slipway.assets.datasets.reading.document import About
from slipway.recipes.filters import UrlsSection

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("url", "blocked"),
    [
        ("https://ads.example/", True),
        ("http://eu.ADS.example:8080/a?b=c", True),
        ("https://user@ads.example./x", True),
        ("https://bads.example/", False),
        ("https://ads.example.org/", False),
        ("https://news.example/paid", True),
        ("https://news.example/paid/today?x=1", True),
        ("https://news.example/paid-for", False),
        ("https://news.example/", False),
        ("https://wiki.example/casino-royale", True),
        ("https://wiki.example/casinos", False),
        ("ads.example/x", True),
        ("http://[::1", False),
        ("", False),
    ],
)
def test_a_url_is_blocked_by_its_domain_its_beginning_or_a_word(url: str, blocked: bool):
    origins = Origins(UrlsSection(blocked=("ads.example", "https://news.example/paid/"), words=("casino",)), ())
    assert origins.why_not(About(url)) == (URL if blocked else None)


@pytest.mark.parametrize(
    ("license", "allowed"),
    [("MIT", True), ("cc-by-4.0", True), ("mit, CC-BY-SA-3.0", True), ("mit, proprietary", False), ("", False)],
)
def test_each_licence_must_be_one_of_the_recipes(license: str, allowed: bool):
    reason = Origins(UrlsSection(), ("mit", "cc-by-*")).why_not(About("", license))
    assert reason == (None if allowed else LICENSE)


def test_a_list_of_urls_is_read_from_a_file(tmp_path: Path):
    (tmp_path / "blocked.txt").write_text("# a comment\nads.example  # the worst\n\n")
    origins = Origins(UrlsSection(file=str(tmp_path / "blocked.txt")), ())
    assert origins.why_not(About("http://ads.example/x")) == URL and origins.why_not(About("http://a.example")) is None


def test_a_list_that_is_missing_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ValueError, match=r"cleaning\.urls\.file: .*none\.txt: expected a list"):
        Origins(UrlsSection(file=str(tmp_path / "none.txt")), ())
