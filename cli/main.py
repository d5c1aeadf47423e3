"""The command `slipway`: all groups of verbs, and what becomes of an error: one sentence, and an exit code.

Exit codes: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
"""

import sys
from collections.abc import Sequence

import typer
from typer.exceptions import Abort, TyperException

from cli import (
    backup,
    branching,
    chaos,
    checkpoints,
    cluster,
    data,
    incidents,
    instance,
    models,
    nodes,
    recipes,
    starting,
    sweeps,
    trainings,
)
from cli.verbs import Sections

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
EXPECTED = {
    "Unavailable",
    "TierUnavailable",
    "Unreachable",
    "DamagedCheckpoint",
    "CannotStart",
    "MlflowException",
    "HelmError",
}
"""The names of errors, beside ValueError and OSError, whose text is meant for a person. A class is looked for by name,
since importing it would import what the verb at hand may not need."""

app = typer.Typer(
    name="slipway",
    cls=Sections,
    help="Data and training as one graph: on this machine (SLIPWAY_HOME), or on the cluster of SLIPWAY_PLATFORM. "
    "A name may be cut short wherever only one begins so.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for verbs in (instance, starting, trainings, branching, backup, chaos):
    app.add_typer(verbs.app)
for name, verbs in (
    ("recipes", recipes),
    ("data", data),
    ("checkpoints", checkpoints),
    ("incidents", incidents),
    ("sweeps", sweeps),
    ("models", models),
    ("nodes", nodes),
    ("cluster", cluster),
):
    app.add_typer(verbs.app, name=name, rich_help_panel="Groups of verbs")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say (by default those of this process); returns the exit code."""
    try:
        return int(app(arguments, prog_name="slipway", standalone_mode=False) or DONE)
    except Abort:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except TyperException as error:
        return _usage(error)
    except Exception as error:
        if not _is_for_people(error):
            raise
        print(f"slipway: {_sentence(error)}", file=sys.stderr)
        return FAILED


def _usage(error: TyperException) -> int:
    """A command that is not there, or arguments that do not fit it; without any arguments, the help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message())
        return USAGE
    command = context.command_path if context else "slipway"
    said = error.format_message().rstrip(".")
    print(f"slipway: {said}{' See' if said.endswith('?') else '; see'} `{command} --help`", file=sys.stderr)
    return USAGE


def _is_for_people(error: Exception) -> bool:
    names = {each.__name__ for each in type(error).__mro__}
    return isinstance(error, ValueError | OSError) or bool(names & EXPECTED)


def _sentence(error: Exception) -> str:
    """The error's text; of an error of the operating system, with its file first."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
