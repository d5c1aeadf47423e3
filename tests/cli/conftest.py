"""The command as the tests call it: in this process, on a home and recipes of their own."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from slipway.cli.main import main

Call = Callable[..., "CallResult"]


@dataclass(frozen=True)
class CallResult:
    """What a call printed, and how it ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def slipway(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Call the command on an empty home, in an empty folder."""
    for variable in ("SLIPWAY_RECIPES", "SLIPWAY_PLATFORM", "SLIPWAY_PORT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> CallResult:
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return CallResult(code, printed.out, printed.err)

    return call
