"""Every command that a page prints: `slipway …`, `make …`, `python -m …`, in a block, a table or a sentence."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt
from typer.exceptions import Exit, TyperException

from tests.cli.verbs import verbs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
VERBS = verbs()
GROUPS = {verb.split()[0] for verb in VERBS if " " in verb}
COMMAND = re.compile(
    r"^(?:\$ )?(?P<sets>(?:[A-Z_]+=\S+ )*)(?:\.venv/bin/)?"
    r"(?P<said>make [a-z-]+(?: [A-Z]+=\S+)*|(?:slipway|python3? -m) .+)"
)
PLACEHOLDER = re.compile(r"\[?(<[^<>]+>|\b[A-Z]{2,}\b)\]?")
"""What stands for a name or a number of the reader's choice; in brackets where it may be left out."""


def commands(text: str) -> Iterator[str]:
    """The commands of a page as it prints them, without comments; with the variables that they set.

    A sentence may name a verb alone, without what it needs; it is then no command.
    """
    for code, in_a_block in _code(text):
        for line in code.replace("\\\n", " ").splitlines():
            for part in line.partition(" #")[0].split("; "):
                if match := COMMAND.match(part.strip()):
                    command = f"{match['sets']}{' '.join(match['said'].split())}"
                    if in_a_block or not _only_names_a_verb(command):
                        yield command


def call(command: str) -> list[str]:
    """What a `slipway …` gives to its parser, with 1 for what the reader chooses."""
    arguments = shlex.split(PLACEHOLDER.sub("1", command))
    return arguments[arguments.index("slipway") + 1 :]


def refusal_of(call: list[str]) -> str:
    """What the command's own parser has against the arguments; empty where it would do the verb."""
    verb = next((verb for verb in (" ".join(call[:count]) for count in (2, 1)) if verb in VERBS), None)
    if verb is None:
        return "" if call[0] in GROUPS | {"1"} or call[0].startswith("-") else f"No such verb: {' '.join(call)}"
    try:
        VERBS[verb].make_context(verb, call[len(verb.split()) :])
    except Exit:  # of --help
        return ""
    except TyperException as error:
        return str(error.format_message())
    return ""


def _only_names_a_verb(command: str) -> bool:
    if not command.startswith("slipway "):
        return False
    arguments = call(command)
    return " ".join(arguments) in VERBS and refusal_of(arguments) != ""


def _code(text: str) -> Iterator[tuple[str, bool]]:
    """What a page shows as code, in its order; and whether it is a block, and not a piece of a sentence or a table."""
    for block in MarkdownIt().enable("table").parse(text):
        if block.type == "fence":
            yield block.content, True
        for token in block.children or []:
            if token.type == "code_inline":
                yield token.content, False
