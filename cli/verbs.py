"""How a verb is declared: with an example in its help, in a section of the list that `slipway --help` shows.

A verb that changes the platform says so, and asks before anything else whether the person who gives it may do that.
"""

import functools
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, cast

import typer
from typer.core import TyperGroup

from slipway.cli import command_context

Function = TypeVar("Function", bound=Callable[..., Any])

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for a script to read.")]
EXAMPLE = "Example: "


class VerbInterrupted(Exception):
    """Ctrl-C was pressed; the text says what a person should know then."""


class Sections(TyperGroup):
    """A group whose help lists its verbs by section, in the order in which they were declared."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            assert command is not None
            section = getattr(command, "rich_help_panel", None)
            title = section if isinstance(section, str) else "Verbs"
            sections.setdefault(title, []).append((name, command.get_short_help_str(limit=80)))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def group(help: str) -> typer.Typer:
    """A group of verbs; without one of them it prints its help."""
    return typer.Typer(cls=Sections, help=help, no_args_is_help=True, rich_markup_mode=None)


def verb(
    app: typer.Typer, example: str, name: str = "", section: str = "Verbs", changes: bool = False
) -> Callable[[Function], Function]:
    """Declare a function as a verb of `app`; its docstring is the help, which ends with the example.

    `changes`: whether it changes the platform, and not only a folder that its caller names. Called without `--apply`,
    or with `--dry-run`, where it has that option, such a verb only looks.
    """
    declare = app.command(name or None, epilog=f"{EXAMPLE}{example}", rich_help_panel=section)
    return (lambda function: declare(_operators_only(function))) if changes else declare


def _operators_only(function: Function) -> Function:
    """The function, refused to a person who may only look."""

    @functools.wraps(function)
    def guarded(*arguments: Any, **options: Any) -> Any:
        if options.get("apply", True) and not options.get("dry_run", False):
            command_context.actor()
        return function(*arguments, **options)

    guarded.changes_the_platform = True  # type: ignore[attr-defined]
    return cast(Function, guarded)
