"""HTML layout of every page: one style, landmarks, tiles and tables; nothing from elsewhere. Pure.

Light and dark follow the reader's system, and a phone shows one column. All values are escaped here.
"""

import functools
import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

STATIC = Path(__file__).parent / "pages" / "static"
CONTENT = '<main id="content">'
REFRESH_SECONDS = 30
"""A page without a script that is being looked at is read again so often, while its subject goes on."""


class Markup(str):
    """Text that is HTML already: a cell of a table that has a link in it."""


@functools.cache
def static(name: str) -> str:
    """The text of a file that becomes part of a page."""
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

    body: HTML. live: whether its subject goes on. served: whether a server renews it; a file is read again. scripts:
    JavaScript; where there is none, or the browser runs none, it reads the page again. nav: names and addresses.
    """
    refresh = f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">' if live else ""
    refresh = f"<noscript>{refresh}</noscript>" if scripts and refresh else refresh
    marks = (' data-live="1"' if live else "") + (' data-served="1"' if served else "")
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
    """A section with its heading; empty where there is nothing in it."""
    inner = "\n".join(body)
    return (
        f'<section aria-labelledby="{id}-title"><h2 id="{id}-title">{escape(title)}</h2>{inner}</section>'
        if inner
        else ""
    )


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values that are seen first."""
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
    """A table of texts and of `Markup`; `attributes` are those of the rows, as HTML.

    It scrolls by itself where it is too wide. stacks: on a phone the cells of a row stand below one another instead,
    each with its column's name: for sentences, of which a narrow column would show a word a line.
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
    """The cells of a row, each with its column's name where a head is given."""
    named = [f' data-column="{escape(name)}"' for name in head] or [""] * len(row)
    return "".join(f"<td{name}>{_cell(cell)}</td>" for name, cell in zip(named, row, strict=True))


def _cell(cell: str) -> str:
    return cell if isinstance(cell, Markup) else escape(cell)


def worded(text: str) -> Markup:
    """A sentence whose commands stand in backticks, as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))


def link(text: str, address: str) -> Markup:
    """A link; the bare text without an address."""
    return Markup(f'<a href="{escape(address)}">{escape(text)}</a>' if address else escape(text))


def navigation(links: Sequence[tuple[str, str]]) -> str:
    """Names and addresses of pages, as the first line of a page; empty for none."""
    named = " · ".join(link(name, address) for name, address in links)
    return f'<header><nav aria-label="Pages">{named}</nav></header>' if named else ""


def with_navigation(html: str, links: Sequence[tuple[str, str]]) -> str:
    """A page that was kept as a file, with the links that only a server can have."""
    return html.replace(CONTENT, f"{navigation(links)}\n{CONTENT}", 1)


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph; nothing for an empty text."""
    marked = f' class="{kind}"' if kind else ""
    return f"<p{marked}>{escape(text)}</p>" if text else ""


def number(value: float | None) -> str:
    """A figure in five digits; a dash where there is none."""
    if value is None:
        return "-"
    return (
        f"{value:,.0f}"
        if value == int(value) and abs(value) < 1e15
        else f"{value:,.5g}"
        if abs(value) >= 1e-3
        else f"{value:.3e}"
    )
