"""The help: short, complete, with an example each, and quick."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.cli.verbs import EXAMPLE
from tests.cli.conftest import Call
from tests.cli.verbs import verbs

ROOT = Path(__file__).parents[2]
VERBS = verbs()
SHORT = 62
"""Characters of a verb's first sentence, so that the list of verbs shows it whole."""
HEAVY = ("dagster", "mlflow", "numpy", "pydantic", "rich", "torch", "yaml")
PROCESSES = (
    "slipway.resources.launchers.local.keeper",
    "slipway.resources.launchers.local.rendezvous",
    "slipway.serving.pull",
    "slipway.serving.worker",
    "slipway.trainer.checkpoint.saving.writer",
    "slipway.trainer.node.agent",
    "slipway.trainer.node.process",
    "slipway.trainer.node_task",
    "slipway.trainer.supervisor",
)


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_says_what_it_does_and_gives_an_example(name: str, slipway: Call):
    result = slipway(*name.split(), "--help")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"Usage: slipway {name} ")
    first, _, _ = VERBS[name].help.partition("\n")
    assert first.endswith(".") and len(first) <= SHORT
    example = VERBS[name].epilog.removeprefix(EXAMPLE)
    assert f"slipway {name}" in example and example in " ".join(result.out.split())


@pytest.mark.parametrize("name", VERBS)
def test_an_example_is_one_that_the_verb_accepts(name: str):
    example = VERBS[name].epilog.partition(f"slipway {name}")[2].replace("'", "").split()
    options = {option for parameter in VERBS[name].params for option in parameter.opts}
    assert {word for word in example if word.startswith("--")} <= options


def test_the_list_of_verbs_has_all_of_them_and_shows_each_sentence_whole(slipway: Call):
    result = slipway("--help")
    assert result.code == 0 and "..." not in result.out.replace("[ARGS]...", "")
    for name, verb in VERBS.items():
        if " " not in name:
            assert verb.help.partition("\n")[0] in " ".join(result.out.split())
        else:
            assert f"  {name.split()[0]} " in result.out


def test_without_a_verb_it_prints_the_help(slipway: Call):
    assert slipway().out == slipway("--help").out
    assert slipway("data").out == slipway("data", "--help").out


def test_the_help_is_there_without_importing_anything_heavy():
    program = (
        "import sys, json; from slipway.cli.main import main; main(['--help']); "
        f"print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=_environ(), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.parametrize("module", PROCESSES)
def test_a_module_that_only_processes_start_says_so_in_one_line(module: str):
    command = [sys.executable, "-m", module, "--help"]
    done = subprocess.run(command, cwd=ROOT, env=_environ(), capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"python -m {module} ") and done.stdout.count("\n") == 1
    assert done.stdout.endswith("Slipway starts it; what a person calls is in slipway --help.\n")


def test_the_page_of_the_command_lists_every_verb_with_its_example():
    page = (ROOT / "docs" / "command.md").read_text()
    missing = [name for name, verb in VERBS.items() if verb.epilog.removeprefix(EXAMPLE) not in page]
    assert missing == []


def _environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}
