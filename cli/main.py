"""The command `slipway`: all groups of verbs, and what becomes of an error: one sentence, and an exit code.

Exit codes: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
"""

import sys
from collections.abc import Sequence

import typer
from typer.exceptions import Abort, TyperException

from slipway.cli import (
    backup,
    branching,
    chaos,
    checkpoints,
    cluster,
    completion,
    data,
    exports,
    generation,
    incidents,
    instance,
    logs,
    metrics,
    models,
    nodes,
    notify,
    recipes,
    serving,
    simulate,
    starting,
    sweeps,
    trainings,
)
from slipway.cli.verbs import Sections, VerbInterrupted
from slipway.resources.errors import is_for_people, sentence
from slipway.trainer.base import proxy_bypass

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
DAGSTERS_INTERRUPTION = "DagsterExecutionInterruptedError"
"""What Ctrl-C, or a request to end, becomes while Dagster runs a step; importing its class would take seconds."""
assert serving.SECTION and generation.SECTION and exports.SECTION  # their verbs are those of models
app = typer.Typer(
    name="slipway",
    cls=Sections,
    help="Data and training as one graph: on this machine (SLIPWAY_HOME), or on the cluster of SLIPWAY_PLATFORM. "
    "A name may be cut short wherever only one begins so.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for verbs in (instance, starting, trainings, logs, branching, backup, chaos, simulate):
    app.add_typer(verbs.app)
for name, verbs in (
    ("recipes", recipes),
    ("data", data),
    ("checkpoints", checkpoints),
    ("incidents", incidents),
    ("sweeps", sweeps),
    ("models", models),
    ("nodes", nodes),
    ("notify", notify),
    ("metrics", metrics),
    ("cluster", cluster),
):
    app.add_typer(verbs.app, name=name, rich_help_panel="Groups of verbs")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say (by default those of this process); returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    proxy_bypass.bypass()
    try:
        if completion.is_asked(arguments):
            print(completion.answer(arguments))
            return DONE
        code = int(app(arguments, prog_name="slipway", standalone_mode=False) or DONE)
        return _interrupted() if code == INTERRUPTED else code  # Typer gives it for Ctrl-C
    except (Abort, KeyboardInterrupt):
        return _interrupted()
    except VerbInterrupted as interruption:
        print(f"\ninterrupted; {interruption}", file=sys.stderr)
        return INTERRUPTED
    except TyperException as error:
        return _usage(error)
    except BaseException as error:
        if type(error).__name__ == DAGSTERS_INTERRUPTION:
            return _interrupted()
        if not is_for_people(error):
            raise
        print(f"slipway: {sentence(error)}", file=sys.stderr)
        return FAILED


def _interrupted() -> int:
    print("interrupted", file=sys.stderr)
    return INTERRUPTED


def _usage(error: TyperException) -> int:
    """A command that is not there, or arguments that do not fit it; without any arguments, the help."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message())
        return USAGE
    command = context.command_path if context else "slipway"
    message = error.format_message().rstrip(".")
    print(f"slipway: {message}{' See' if message.endswith('?') else '; see'} `{command} --help`", file=sys.stderr)
    return USAGE
