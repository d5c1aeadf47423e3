"""All verbs of the command, read from the command itself."""

from collections.abc import Iterator
from typing import Any

import typer

from slipway.cli.main import app


def verbs() -> dict[str, Any]:
    """Each verb as it is called, such as "data build", with what typer knows of it."""
    return dict(_below(typer.main.get_command(app), ()))


def _below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, subcommand in command.commands.items():
        if hasattr(subcommand, "commands"):
            yield from _below(subcommand, (*path, name))
        else:
            yield " ".join((*path, name)), subcommand
