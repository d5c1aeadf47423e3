"""Completion in the shell: installed for the shell that is named, that runs the command, or that SHELL names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ORPHAN = """
import os, subprocess, sys
print(subprocess.run([sys.executable, "-m", "slipway.cli", *sys.argv[1:]], env=dict(os.environ)).returncode, flush=True)
"""
"""Calls the command as a child of a process that no shell has started."""


def orphan(home: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """The code and the words of the command, of which no ancestor is a shell."""
    environ = {name: value for name, value in os.environ.items() if name != "SHELL"}
    environ |= {"HOME": str(home), **variables}
    # A process whose parent has ended becomes a child of init.
    script = "import os, sys; os.fork() and os._exit(0); os.setsid(); os.read(0, 1); " + ORPHAN
    started = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=environ,
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert started.stdin is not None and started.stdout is not None
    started.wait()
    started.stdin.close()  # only now: its parent has ended
    *printed_lines, code = started.stdout.read().splitlines()
    return int(code), "\n".join(printed_lines)


def script(home: Path) -> Path:
    return home / ".bash_completions" / "slipway.sh"


def test_where_no_shell_is_known_one_is_asked_for_in_a_sentence(tmp_path: Path):
    code, output = orphan(tmp_path, "--install-completion")
    assert code == 2 and "name one of bash, zsh, fish" in output and "slipway --install-completion bash" in output
    assert not any(tmp_path.iterdir())


def test_the_shell_that_is_named_gets_the_completion(tmp_path: Path):
    code, output = orphan(tmp_path, "--install-completion", "bash")
    assert code == 0 and str(script(tmp_path)) in output and "_SLIPWAY_COMPLETE" in script(tmp_path).read_text()


def test_the_variable_shell_names_it_where_no_shell_runs_the_command(tmp_path: Path):
    code, output = orphan(tmp_path, "--show-completion", SHELL="/usr/bin/fish")
    assert code == 0 and "complete_fish" in output


def test_a_shell_that_has_no_completion_is_named(tmp_path: Path):
    code, output = orphan(tmp_path, "--install-completion", SHELL="/bin/tcsh")
    assert code == 2 and "found the shell 'tcsh', expected one of bash" in output


@pytest.mark.parametrize(("line", "code"), [("slipway recipes ", 0), ("slipway recipes check ", 1)])
def test_fish_learns_from_the_exit_code_whether_there_are_words_to_choose_from(line: str, code: int):
    completion_request = {"_SLIPWAY_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "is-args"}
    environ = {**os.environ, **completion_request, "_TYPER_COMPLETE_ARGS": line}
    done = subprocess.run([sys.executable, "-m", "slipway.cli"], env=environ, cwd=Path(__file__).parents[2])
    assert done.returncode == code
