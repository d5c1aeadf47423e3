"""What the pages of this repository name: links to files that exist, from docs/ to nothing outside it, and modules.

`make docs` checks links to pages and headings of docs/; these tests check pictures and other files, and the pages that
are not part of the site. External addresses are not asked.
"""

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

pytestmark = pytest.mark.pure

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*DOCS, *sorted(ROOT.glob("*.md"))]
MODULE = re.compile(r"`([a-z_]+(?:/\w+)+\.py)`")


def targets(page: Path) -> list[str]:
    """The files that a page links to or shows, as it names them."""
    link_targets = [target(token) for block in MarkdownIt().parse(page.read_text()) for token in block.children or []]
    return [name for link in link_targets if (name := link.split("#")[0]) and "://" not in link]


def target(token: Token) -> str:
    """What a link or picture leads to; empty for anything else."""
    return str(token.attrGet("href") or token.attrGet("src") or "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path):
    assert [name for name in targets(page) if not (page.parent / name).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_the_modules_that_a_page_names_by_their_paths_are_there(page: Path):
    named = {name for name in MODULE.findall(page.read_text()) if (ROOT / name.split("/")[0]).is_dir()}
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_links_of_docs_stay_in_docs_and_so_hold_on_the_site(page: Path):
    assert [name for name in targets(page) if ".." in Path(name).parts] == []


def test_links_and_pictures_are_found():
    assert {"docs/index.md", "docs/images/asset-graph.png", "LICENSE"} <= set(targets(ROOT / "README.md"))
