"""Every `slipway ...` that a page prints is one that the command accepts: its verb, its options, its arguments."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.printed import PAGES, call, commands, refusal_of


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_one_that_the_parser_accepts(page: Path):
    refused = {command: refusal for command in calls(page.read_text()) if (refusal := refusal_of(call(command)))}
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
$ make test    lint, and all tests
```
"""
    assert list(commands(text)) == ["slipway ls --all", "slipway show ID", "A=1 slipway down", "make test"]


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        ("slipway launch x", "No such verb"),
        ("slipway ls --colour red", "No such option"),
        ("slipway show", "Missing argument"),
        ("slipway plan tiny --dataset-gigabytes many", "Invalid value"),
        ("slipway down now", "unexpected extra argument"),
    ],
)
def test_a_command_that_the_parser_does_not_accept_is_found(command: str, refusal: str):
    assert refusal in refusal_of(call(command))


def calls(text: str) -> Iterator[str]:
    """The calls of `slipway` on a page."""
    return (command for command in commands(text) if "slipway" in shlex.split(command))
