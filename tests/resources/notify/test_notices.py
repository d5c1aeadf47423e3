"""Which notices people get, and when: pure."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.recipes.problems import InvalidRecipes
from slipway.resources.daily_report import reading
from slipway.resources.daily_report import report as morning
from slipway.resources.home import Home
from slipway.resources.notify import notices, settings
from slipway.resources.notify.notices import Notice
from slipway.resources.notify.outbox import Outbox
from slipway.resources.notify.settings import NoticeKind, NotificationSettings
from slipway.trainer.record import causes
from tests.cli import homes
from tests.resources.daily_report.nights import SeededNight, failed

pytestmark = pytest.mark.pure


def notices_of(night: SeededNight, after: float = 0.0) -> list[Notice]:
    night_facts = reading.read_facts(night.durable, night.since)
    return notices.of_report(morning.report(replace(night_facts, until=night_facts.until + after)))


def some(kind: NoticeKind, id: str = "x") -> Notice:
    return Notice(id, kind, f"{id} happened", "What to do: nothing", 1000.0)


def notification_settings(**fields: Any) -> NotificationSettings:
    return NotificationSettings.model_validate({"urls_file": "urls", **fields})


def at(hour: int, minute: int = 0) -> float:
    return datetime(2026, 5, 4, hour, minute, tzinfo=UTC).timestamp()


def test_a_notice_says_what_happened_what_was_done_what_to_do_and_where_to_look(tmp_path: Path):
    night = SeededNight(Home(tmp_path))
    night.interrupted("killed", causes.KILLED, "node-1: rank 1 was killed by signal 9")
    [notice] = notices_of(night)
    assert notice.kind is NoticeKind.INCIDENT and notice.title.endswith(": killed")
    lines = notices.with_links(notice, "https://slipway.example").splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "What happened",
        "Where, and what it cost",
        "What was done",
        "What to do",
        "Evidence",
        "Link",
    ]
    assert "https://slipway.example/assets/killed/incident?view=partitions&partition=killed-" in lines[-1]
    assert "Link" not in notices.with_links(notice, "")


def test_of_a_night_of_ten_faults_two_need_a_person_and_a_stop_or_a_restart_tells_nobody(tmp_path: Path):
    night = SeededNight(Home(tmp_path))
    night.of_ten_faults()
    kinds = [notice.kind for notice in notices_of(night)]
    assert (kinds.count(NoticeKind.PERSON), kinds.count(NoticeKind.INCIDENT), len(kinds)) == (2, 8, 10)


def test_an_incident_that_recovers_is_reported_when_it_has_or_when_it_takes_long(tmp_path: Path):
    night = SeededNight(Home(tmp_path))
    failed(homes.running(night.home, "killed", 50), causes.KILLED, "rank 1 was killed")
    assert notices_of(night) == []
    [late] = notices_of(night, after=notices.RECOVERY_SECONDS)
    assert late.kind is NoticeKind.INCIDENT


def test_several_notices_are_one_message_and_what_needs_a_person_comes_first():
    several = [some(NoticeKind.INCIDENT, "first"), some(NoticeKind.PERSON, "second"), some(NoticeKind.GATE, "third")]
    message = notices.message(several)
    assert message.title == "Slipway: 3 notices, 1 needs a person" and message.is_urgent
    assert message.body.startswith("second happened") and message.body.count("What to do") == 3
    many = notices.message([some(NoticeKind.INCIDENT, str(number)) for number in range(50)])
    assert "and 30 more" in many.body and not many.is_urgent


def test_notices_wait_for_others_of_their_group_unless_a_person_is_needed():
    chosen = notification_settings(group_seconds=60)
    pending = [(some(NoticeKind.INCIDENT), 1000.0)]
    assert notices.due(pending, chosen, 1059.0) == []
    assert notices.due(pending, chosen, 1060.0) == [pending[0][0]]
    both = [*pending, (some(NoticeKind.PERSON), 1058.0)]
    assert len(notices.due(both, chosen, 1059.0)) == 2


def test_in_quiet_hours_only_what_needs_a_person_comes_through_and_the_rest_follows_after_them():
    chosen = notification_settings(quiet_hours="22:00-07:00", group_seconds=0)
    pending = [(some(NoticeKind.INCIDENT, "a"), at(1)), (some(NoticeKind.PERSON, "b"), at(1))]
    assert [notice.id for notice in notices.due(pending, chosen, at(2))] == ["b"]
    assert [notice.id for notice in notices.due(pending[:1], chosen, at(2))] == []
    assert [notice.id for notice in notices.due(pending[:1], chosen, at(7))] == ["a"]


def test_quiet_hours_are_those_of_the_time_zone():
    berlin = notification_settings(quiet_hours="22:00-07:00", timezone="Europe/Berlin")
    assert berlin.is_quiet(at(20, 30)) and not berlin.is_quiet(at(5, 30))
    assert notification_settings(quiet_hours="12:00-13:00").is_quiet(at(12, 59)) and not notification_settings(
        quiet_hours=""
    ).is_quiet(at(12))


@given(st.sets(st.sampled_from(list(NoticeKind)), min_size=1), st.sampled_from(list(NoticeKind)))
def test_kinds_that_were_not_asked_for_are_never_sent(kinds: set[NoticeKind], kind: NoticeKind):
    chosen = notification_settings(kinds=sorted(kinds), group_seconds=0)
    assert bool(notices.due([(some(kind), 1000.0)], chosen, 1001.0)) == (kind in kinds)


def test_a_notice_is_noted_once_and_a_new_endpoint_is_not_sent_what_was_before_it(tmp_path: Path):
    outbox = Outbox(tmp_path)
    assert outbox.note(some(NoticeKind.GATE, "old"), now=1000.0)
    assert not outbox.note(some(NoticeKind.GATE, "old"))
    assert outbox.pending("json://one") == []
    assert outbox.note(some(NoticeKind.GATE, "new"))
    [only] = outbox.pending("json://one")
    outbox.delivered("json://one", [only.notice])
    assert Outbox(tmp_path).pending("json://one") == []


def test_a_damaged_notice_stops_no_other(tmp_path: Path):
    outbox = Outbox(tmp_path)
    outbox.pending("json://one")
    outbox.note(some(NoticeKind.GATE, "torn"))
    (tmp_path / "outbox" / "torn.json").write_text("{torn")
    outbox.note(some(NoticeKind.GATE, "whole"))
    assert [entry.notice.id for entry in outbox.pending("json://one")] == ["whole"]
    assert outbox.note(some(NoticeKind.GATE, "torn"))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("quiet_hours", "10pm", "HH:MM-HH:MM"),
        ("timezone", "Mars/Olympus", "time zone"),
        ("kinds", "[incidents]", "incident, person"),
        ("address", "https://ada:secret@example.org", "a user, password or token"),
        ("urls", "json://x", "urls"),
    ],
)
def test_bad_settings_are_refused_with_the_line_and_what_is_expected(
    tmp_path: Path, field: str, value: str, expected: str
):
    (tmp_path / settings.FILE).write_text(f"slipway: notifications/1\nurls_file: urls\n{field}: {value}\n")
    with pytest.raises(InvalidRecipes, match=expected) as caught:
        settings.of_home(tmp_path)
    assert f"{settings.FILE}:3" in str(caught.value) and "secret@" not in str(caught.value)


def test_a_home_without_settings_tells_nobody(tmp_path: Path):
    assert settings.of_home(tmp_path) is None
