"""Errors: one sentence on standard error and an exit code, and never a traceback for what a person did."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._utils.interrupts import raise_interrupts_as

from slipway.cli import command_context
from slipway.cli import main as command
from slipway.cli.verbs import VerbInterrupted
from tests.cli.conftest import Call

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["xyz"], 2, "No such command 'xyz'; see `slipway --help`"),
        (["shows"], 2, "No such command 'shows'. Did you mean 'show', 'chaos'? See `slipway --help`"),
        (["stop"], 2, "Missing argument 'TRAINING'; see `slipway stop --help`"),
        (["ls", "--color"], 2, "No such option: --color; see `slipway ls --help`"),
        (["stop", "tiny"], 1, "running training tiny: found none that begins so, and there is none"),
        (["replay", "tiny"], 1, "tiny: found no step, expected TRAINING@STEP; slipway checkpoints list tiny"),
        (["replay", "tiny@x"], 1, "tiny@x: found the step 'x', expected TRAINING@STEP with a whole number"),
        (["run", "huge"], 1, "training recipe huge: found none that begins so, expected one of bigram, tiny-decoder"),
        (["plan", "tiny", "run.steps"], 1, "run.steps: found no FIELD=VALUE, expected for example run.steps=50"),
        (["plan", "tiny", "run.steps=5", "run.steps=6"], 1, "run.steps: found two values, 5 and 6, expected one"),
        (["plan", "tiny", "run.steps=no"], 1, 'run.steps=no: run.steps: found "no", expected a whole number'),
        (["nodes", "bisect", "node-0"], 1, "nodes: found node-0 alone, expected two at least, or one and a good one"),
        (["sweeps", "start", "huge"], 1, "sweep recipe huge: found none that begins so, expected one of tiny-decoder"),
        (["nodes", "kill", "node-7"], 1, "node node-7: found none that begins so, expected one of node-0, node-1"),
        (
            ["nodes", "preflight", "--expect", "disk=fast"],
            2,
            "Invalid value for '--expect': found 'disk=fast', expected NAME=VALUE, for example 'disk read=7'; "
            "see `slipway nodes preflight --help`",
        ),
        (
            ["nodes", "preflight", "--disk-size", "1M"],
            2,
            "Invalid value for '--disk-size': found '1M', expected 8M or more, for example 512M or 4G; "
            "see `slipway nodes preflight --help`",
        ),
        (["nodes", "preflight", "--folder", "none"], 1, "--folder: found nothing at none, expected a folder"),
        (
            ["nodes", "clean", "--nvme", "none", "--gigabytes", "8", "--days", "7"],
            1,
            "--nvme: found nothing at none, expected a folder",
        ),
        (
            ["restore", "yesterday"],
            1,
            "backup yesterday: found another name, expected a folder as slipway backup prints it, "
            "such as metadata/20260131T060000.000000Z",
        ),
        (
            ["data", "history", "python"],
            1,
            "dataset python-stdlib: found no snapshot, expected one; to make it: slipway data build python-stdlib",
        ),
        (
            ["ls", "--sql", "FROM none"],
            1,
            "query 'FROM none': Catalog Error: Table with name none does not exist!; "
            "the tables are trainings, spent, lost, cost, quotas",
        ),
        (["models", "show", "none"], 1, "model none: found none that begins so, and there is none"),
        (
            ["nodes", "cordon", "node-0", "--why", "noise"],
            1,
            "SLIPWAY_PLATFORM: found nothing, expected the file of a cluster's settings: "
            "an embedded node is taken away with slipway nodes kill",
        ),
    ],
)
def test_what_a_person_did_wrong_is_said_in_one_sentence(arguments: list[str], code: int, sentence: str, slipway: Call):
    result = slipway(*arguments)
    assert (result.code, result.out) == (code, "")
    assert result.err.splitlines()[-1] == f"slipway: {sentence}", "after lines of progress, where it takes long"


def test_a_home_that_is_a_file_is_refused_by_every_verb(slipway: Call, tmp_path: Path):
    (tmp_path / "home").write_text("")
    result = slipway("ls")
    assert result.err == f"slipway: SLIPWAY_HOME {tmp_path / 'home'}: found a file, expected a folder, or nothing yet\n"


def test_a_verb_of_the_embedded_instance_says_so_on_a_cluster(slipway: Call, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLIPWAY_PLATFORM", "cluster.yaml")
    result = slipway("dev")
    assert result.code == 1
    assert result.err == (
        "slipway: SLIPWAY_PLATFORM=cluster.yaml: found a cluster, expected an embedded instance: "
        "a cluster's instance is installed by its chart\n"
    )


def test_settings_that_are_not_there_are_named(slipway: Call, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLIPWAY_PLATFORM", "nowhere.yaml")
    assert slipway("ls").err.startswith("slipway: nowhere.yaml: found No such file or directory, expected")


def test_a_fault_of_our_own_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch):
    def broken() -> None:
        raise AssertionError("an invariant")

    monkeypatch.setattr(command_context, "current", broken)
    with pytest.raises(AssertionError, match="an invariant"):
        command.main(["ls"])


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "end"])
def test_an_interruption_while_dagster_runs_a_step_is_one_word(
    signal_number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def step() -> None:
        with raise_interrupts_as(DagsterExecutionInterruptedError):
            os.kill(os.getpid(), signal_number)
            time.sleep(60)  # the signal's handler ends it at once

    monkeypatch.setattr(command_context, "current", step)
    assert command.main(["ls"]) == command.INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("in_a_step", [False, True], ids=["alone", "in a step of Dagster"])
def test_ctrl_c_is_one_word(in_a_step: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def interrupted() -> None:
        raise KeyboardInterrupt

    def step() -> None:
        with dg.DagsterInstance.ephemeral() as instance:
            dg.materialize([dg.asset(name="interrupted")(interrupted)], instance=instance)

    monkeypatch.setattr(command_context, "current", step if in_a_step else interrupted)
    assert command.main(["ls"]) == command.INTERRUPTED
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "slipway.cli", "nope"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("slipway: No such command 'nope'")


def test_a_verb_that_knows_more_of_an_interruption_says_it_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted() -> None:
        raise VerbInterrupted("all is kept")

    monkeypatch.setattr(command_context, "current", interrupted)
    assert command.main(["ls"]) == command.INTERRUPTED
    assert capsys.readouterr().err == "\ninterrupted; all is kept\n"
