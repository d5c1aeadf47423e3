"""Completion: a shell's own file, by which it asks `slipway` what a word may become. Typer writes it.

Typer finds the shell among the parents of the process, and says `Shell None` where none is among them: a script's last
command takes the shell's place, and a container may have no shell at all. Here a person may name one, and what the
variable SHELL names is the shell otherwise.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import typer
from typer._completion_shared import Shells, _get_shell_name, get_completion_script, install

PROGRAM = "slipway"
INSTALL = "--install-completion"
SHOW = "--show-completion"
NAMES = ", ".join(Shells)


def is_asked(arguments: Sequence[str]) -> bool:
    """Whether the arguments of `slipway` ask for a shell's completion: the option, and the name of a shell or none."""
    return len(arguments) in (1, 2) and arguments[0] in (INSTALL, SHOW) and arguments[-1] != "--help"


def answer(arguments: Sequence[str]) -> str:
    """Do what `is_asked`; returns what to print. Raises BadParameter where the shell is unknown."""
    option, *names = arguments
    shell = _shell(names[0] if names else "")
    if option == SHOW:
        return get_completion_script(prog_name=PROGRAM, complete_var=f"_{PROGRAM.upper()}_COMPLETE", shell=shell)
    _, path = install(shell=shell, prog_name=PROGRAM)
    return f"{shell} completion installed in {path}\nCompletion will take effect once you restart the terminal"


def _shell(name: str) -> str:
    shell = name or _get_shell_name() or Path(os.environ.get("SHELL", "")).name
    if shell in list(Shells):
        return shell
    if shell:
        raise typer.BadParameter(f"found the shell {shell!r}, expected one of {NAMES}: slipway {INSTALL} bash")
    raise typer.BadParameter(
        f"found no shell: none has started this command, and SHELL is not set; name one of {NAMES}: "
        f"slipway {INSTALL} bash"
    )
