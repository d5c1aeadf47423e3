"""Every `slipway ...` that a page prints is one that the command accepts: its verb, its options, its arguments."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from typer.exceptions import Exit, TyperException

from tests.cli.verbs import verbs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
VERBS = verbs()
GROUPS = {verb.split()[0] for verb in VERBS if " " in verb}
CALL = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?slipway (?P<arguments>.+)$")
PLACEHOLDER = re.compile(r"\[?(<[^<>]+>|\b[A-Z]{2,}\b)\]?")
"""What stands for a name or a number of the reader's choice; in brackets where it may be left out."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_one_that_the_parser_accepts(page: Path):
    refused = {call: refusal for call in calls(page.read_text()) if (refusal := refusal_of(call))}
    assert refused == {}


def test_commands_are_found_in_blocks_in_tables_and_in_sentences():
    text = """\
Call `slipway ls --all`, or `slipway show`.

| a |
|---|
| `slipway show ID` |

```sh
A=1 slipway \\
    down # ends it
```
"""
    assert list(calls(text)) == ["slipway ls --all", "slipway show 1", "slipway down"]


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        ("slipway launch x", "No such verb"),
        ("slipway ls --colour red", "No such option"),
        ("slipway show", "Missing argument"),
        ("slipway plan tiny --dataset-gigabytes many", "Invalid value"),
        ("slipway down now", "unexpected extra argument"),
    ],
)
def test_a_command_that_the_parser_does_not_accept_is_found(call: str, refusal: str):
    assert refusal in refusal_of(call)


def calls(text: str) -> Iterator[str]:
    """The commands that a page prints, without their environment and comments, and with 1 for what the reader chooses.

    A sentence may name a verb alone, without what it needs; it is then no command.
    """
    for code, in_a_block in _code(text):
        for line in code.replace("\\\n", " ").splitlines():
            for part in line.split(";"):
                if found := CALL.match(part.strip()):
                    words = shlex.split(PLACEHOLDER.sub("1", found["arguments"].partition(" #")[0]))
                    if in_a_block or " ".join(words) not in VERBS:
                        yield shlex.join(["slipway", *words])


def _code(text: str) -> Iterator[tuple[str, bool]]:
    """What a page shows as code, in its order; and whether it is a block, and not a piece of a sentence or a table."""
    for block in MarkdownIt().enable("table").parse(text):
        if block.type == "fence":
            yield block.content, True
        for token in block.children or []:
            if token.type == "code_inline":
                yield token.content, False


def refusal_of(call: str) -> str:
    """What the command's own parser has against the arguments; empty where it would do the verb."""
    _, *words = shlex.split(call)
    verb = next((verb for verb in (" ".join(words[:count]) for count in (2, 1)) if verb in VERBS), None)
    if verb is None:
        return "" if words[0] in GROUPS | {"1"} or words[0].startswith("-") else f"No such verb: {' '.join(words)}"
    try:
        VERBS[verb].make_context(verb, words[len(verb.split()) :])
    except Exit:  # of --help
        return ""
    except TyperException as error:
        return str(error.format_message())
    return ""
