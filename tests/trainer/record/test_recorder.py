"""The recorder of a rank: when its start began."""

from pathlib import Path

import pytest

from slipway.trainer.record import ledger
from slipway.trainer.record.fence import Token
from slipway.trainer.record.recorder import BEGUN_VARIABLE, RankRecorder

pytestmark = pytest.mark.pure


def test_the_start_of_a_jobs_first_ranks_begins_with_the_supervisor_that_imported_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BEGUN_VARIABLE, "12.5")
    RankRecorder(tmp_path, Token(1), 0).close()
    assert [event["since"] for event in ledger.read(tmp_path) if event["event"] == "phase"] == [12.5]
