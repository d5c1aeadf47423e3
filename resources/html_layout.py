"""HTML layout of every page: one style, landmarks, tiles and tables. Pages load nothing from other servers. Pure.

The colour scheme follows the reader's system, and a phone shows one column. This module escapes all values.
"""

import functools
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

STATIC = Path(__file__).parent / "pages" / "static"
CONTENT = '<main id="content">'
REFRESH_SECONDS = 30
"""How often a page without a script reloads while its subject is running."""


class Markup(str):
    """Text that is HTML already, such as a table cell with a link."""


@functools.cache
def static(name: str) -> str:
    """The text of a static file that is inlined into a page."""
    return (STATIC / name).read_text(encoding="utf-8")


def page(
    title: str,
    body: Iterable[str],
    *,
    head: str = "",
    live: bool = False,
    served: bool = False,
    scripts: str = "",
    nav: Sequence[tuple[str, str]] = (),
) -> str:
    """A whole page.

    body: HTML. live: whether the subject is running. served: whether a server answers (True) or the page is a file.
    scripts: JavaScript that updates the page; without it, the browser reloads the page. nav: names and addresses.
    """
    refresh = f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">' if live else ""
    if scripts and refresh:
        refresh = f"<noscript>{refresh}</noscript>"
    marks = "".join(f' data-{name}="1"' for name, is_set in {"live": live, "served": served}.items() if is_set)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"{head}{refresh}<title>{escape(title)}</title>",
            f"<style>{static('page.css')}{static('uplot.css') if scripts else ''}</style></head><body{marks}>",
            '<a class="skip" href="#content">To the content</a>',
            navigation(nav),
            CONTENT,
            *body,
            "</main>",
            *([f"<script>{scripts}</script>"] if scripts else []),
            "</body></html>\n",
        ]
    )


def section(id: str, title: str, body: Iterable[str]) -> str:
    """A section with its heading; "" if the body is empty."""
    inner = "\n".join(body)
    if not inner:
        return ""
    return f'<section aria-labelledby="{id}-title"><h2 id="{id}-title">{escape(title)}</h2>{inner}</section>'


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """A row of tiles, each with a large value and its name."""
    return (
        f'<ul class="tiles">{"".join(f"<li><b>{escape(value)}</b>{escape(name)}</li>" for name, value in pairs)}</ul>'
    )


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    attributes: Sequence[str] = (),
    align_left: bool = False,
    stacks: bool = False,
) -> str:
    """A table of texts and `Markup`; `attributes` holds the HTML attributes of each row.

    It scrolls by itself if it is too wide. stacks: a phone puts the cells of a row below one another instead, each with
    its column's name. This suits sentences, of which a narrow column would show one word per line.
    """
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "\n".join(
        f"<tr{attributes[index] if attributes else ''}>{_cells(head if stacks else (), row)}</tr>"
        for index, row in enumerate(rows)
    )
    names = [name for name, is_set in {"left": align_left, "stacks": stacks}.items() if is_set]
    kind = f' class="{" ".join(names)}"' if names else ""
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(", ".join(head))}">' + (
        f"<table{kind}><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>"
    )


def _cells(head: Sequence[str], row: Sequence[str]) -> str:
    """The cells of a row, each with its column's name if `head` is not empty."""
    named = [f' data-column="{escape(name)}"' for name in head] or [""] * len(row)
    return "".join(f"<td{name}>{_cell(cell)}</td>" for name, cell in zip(named, row, strict=True))


def _cell(cell: str) -> str:
    return cell if isinstance(cell, Markup) else escape(cell)


def worded(text: str) -> Markup:
    """A sentence as HTML, with the commands that stand in backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))


def link(text: str, address: str) -> Markup:
    """A link; the bare text if there is no address."""
    if not address:
        return Markup(escape(text))
    return Markup(f'<a href="{escape(address)}">{escape(text)}</a>')


def navigation(links: Sequence[tuple[str, str]]) -> str:
    """The header with links to other pages; "" if there are none."""
    named = " · ".join(link(name, address) for name, address in links)
    return f'<header><nav aria-label="Pages">{named}</nav></header>' if named else ""


def with_navigation(html: str, links: Sequence[tuple[str, str]]) -> str:
    """A stored page with the navigation links that only a server can add."""
    return html.replace(CONTENT, f"{navigation(links)}\n{CONTENT}", 1)


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph; "" for an empty text."""
    marked = f' class="{kind}"' if kind else ""
    return f"<p{marked}>{escape(text)}</p>" if text else ""


def number(value: float | None) -> str:
    """A number in about five digits; "-" for None."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    if abs(value) >= 1e-3:
        return f"{value:,.5g}"
    return f"{value:.3e}"
