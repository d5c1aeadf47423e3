"""Incidents: one record for each, whoever notices it."""

from pathlib import Path

import pytest

from slipway.trainer.base import codec
from slipway.trainer.record import causes, incidents
from slipway.trainer.record.incidents import IncidentRecord

TOKEN = "000002.0001"
KILLED = IncidentRecord(TOKEN, causes.DISRUPTED, "rank 3 was killed", "restarted", "supervisor", 5.0, 40, (3,))
SKIPPED = IncidentRecord(TOKEN, causes.DIVERGED, "the loss is NaN", "skipped", "trainer", 4.0, 39, survived=True)


def test_the_first_record_of_an_ended_generation_stands(tmp_path: Path) -> None:
    late = IncidentRecord(TOKEN, causes.UNKNOWN, "the job failed", "started again", "job_watch", 9.0, 30)
    assert incidents.note(tmp_path, KILLED)
    assert not incidents.note(tmp_path, late)
    assert incidents.read(tmp_path, TOKEN) == KILLED


def test_a_generation_that_goes_on_may_have_several_incidents(tmp_path: Path) -> None:
    for incident in (SKIPPED, KILLED):
        assert incidents.note(tmp_path, incident)
    assert incidents.names(tmp_path, incarnation=2) == [f"{TOKEN}.000000039", TOKEN]
    assert incidents.names(tmp_path, incarnation=1) == []


def test_two_incidents_of_one_step_hide_neither(tmp_path: Path) -> None:
    slow = IncidentRecord(
        TOKEN, causes.STRAGGLER, "rank 3 is slow", "reported", "trainer", 4.5, 39, (3,), survived=True
    )
    noted = [incidents.note_survived(tmp_path, record) for record in (SKIPPED, slow, SKIPPED)]
    assert [record.id for record in noted] == [f"{TOKEN}.000000039{number}" for number in ("", ".1", ".2")]
    assert [incidents.read(tmp_path, id) for id in sorted(incidents.names(tmp_path))] == noted
    assert (noted[0], noted[1].reason) == (SKIPPED, slow.reason)


def test_a_damaged_record_names_its_file(tmp_path: Path) -> None:
    incidents.note(tmp_path, KILLED)
    file = tmp_path / "incidents" / f"{TOKEN}.json"
    file.write_bytes(file.read_bytes().replace(b"rank 3", b"rank 4"))
    with pytest.raises(codec.UndecodableRecord, match=str(file)):
        incidents.read(tmp_path, TOKEN)
