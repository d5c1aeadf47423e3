"""Operators by the command: where they are named, a verb that changes the platform is refused to everybody else.

It is refused before it has read anything, so that no argument leads around it.
"""

import shlex
from pathlib import Path

import pytest

from slipway.cli.verbs import EXAMPLE
from tests.cli.conftest import Call
from tests.cli.verbs import verbs
from tests.kubernetes import settings

VERBS = verbs()
CHANGING = [name for name, verb in VERBS.items() if getattr(verb.callback, "changes_the_platform", False)]
LOOKING = {
    "checkpoints list", "checkpoints verify", "data diff", "data history", "data inspect", "data list",
    "incidents show", "logs", "ls", "metrics render", "metrics serve", "metrics show", "models ask", "models card",
    "models list", "models served", "models show", "nodes list", "nodes show", "plan", "quotas", "recipes check",
    "recipes show", "replay", "show", "simulate", "sweeps list", "sweeps show", "watch",
}  # fmt: skip
ONLY_HERE = {
    "cluster render", "cluster schema", "data stage", "demo", "dev", "down", "init", "nodes clean", "nodes preflight",
    "recipes new", "sweeps export", "up",
}  # fmt: skip
"""They change the machine on which they are called: folders that the caller names, and an embedded instance."""


@pytest.fixture
def viewers(slipway: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command on a cluster of which we are no operator; its tiers are nowhere, so that nothing can be read."""
    nowhere = settings.settings(tmp_path / "durable", tmp_path / "nvme")
    people = {"user_header": "X-Forwarded-User", "operators": ["oda@x.example"], "promoters": ["pia@x.example"]}
    file = settings.write(tmp_path / "platform.yaml", {**nowhere, **people})
    monkeypatch.setenv("SLIPWAY_PLATFORM", str(file))
    return slipway


def test_whether_a_verb_changes_the_platform_is_known_of_each():
    assert set(VERBS) - set(CHANGING) == LOOKING | ONLY_HERE


@pytest.mark.parametrize("name", CHANGING)
def test_a_verb_that_changes_the_platform_is_an_operators(viewers: Call, tmp_path: Path, name: str):
    example = shlex.split(VERBS[name].epilog.removeprefix(EXAMPLE).partition("slipway ")[2])
    arguments = [word for word in example if word != "--dry-run"]
    can_apply = any("--apply" in parameter.opts for parameter in VERBS[name].params)
    result = viewers(*arguments, *(["--apply"] if can_apply and "--apply" not in arguments else []))
    assert result.code == 1 and "operators: found " in result.err, result
    assert result.err.endswith("expected one of the platform's operators: oda@x.example, pia@x.example\n")
    assert not (tmp_path / "durable").exists()


@pytest.mark.parametrize("verb", [["data", "gc"], ["checkpoints", "reseal", "--dry-run"]])
def test_what_would_be_done_is_shown_to_everybody(viewers: Call, verb: list[str]):
    assert "operators: found " not in viewers(*verb).err
