"""The morning after: everything that happened is named with its cause, and only what needs a person is red."""

import re
import shutil
import time
from pathlib import Path

import pytest

from slipway.resources.daily_report import page, reading, text
from slipway.resources.daily_report import report as morning
from slipway.resources.daily_report.report import DailyReport, ReportItem
from slipway.resources.fleet.health.standing import Standing
from slipway.resources.home import Home
from slipway.resources.trainings import incidents
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import journal
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.record import causes, fence
from slipway.trainer.record.fence import Token
from tests.cli import homes
from tests.resources.daily_report.nights import SeededNight, failed, go_on

pytestmark = pytest.mark.pure


@pytest.fixture
def night(tmp_path: Path) -> SeededNight:
    return SeededNight(Home(tmp_path))


def report_of(night: SeededNight, since: float | None = None) -> DailyReport:
    return morning.report(reading.read_facts(night.durable, night.since if since is None else since))


def of(report: DailyReport, recipe: str) -> ReportItem:
    [item] = [item for item in report.items if recipe in item.subject]
    return item


def test_after_a_night_of_ten_faults_all_ten_are_named_with_their_cause_and_nothing_else_is_red(night: SeededNight):
    night.of_ten_faults()
    report = report_of(night)
    assert {
        item.subject.removeprefix("node ").removeprefix("tier ").split("-")[0]: item.cause for item in report.items
    } == {
        "killed": causes.KILLED,
        "lost": causes.DISRUPTED,
        "memory": causes.ANSWERED,
        "hanging": causes.HUNG,
        "network": causes.NETWORK,
        "broken": causes.CONFIGURATION,
        "spiking": causes.SPIKE,
        "damaged": "damaged checkpoint",
        "backup": "not copied",
        "n7": "repair",
        "grown": "restart",
    }
    assert [item.cause for item in report.waiting] in (["repair", "configuration"], ["configuration", "repair"])
    assert [training.rpartition("-")[0] for training in report.succeeded] == ["finished"]
    assert [training.rpartition("-")[0] for training in report.stopped] == ["stopped"]
    assert report.sentence.startswith("2 things wait for a person; 7 incidents, ")
    html = page.html(report, "http://localhost:3000")
    assert len(re.findall(r'<article class="red">', html)) == 2


def test_an_incident_says_where_it_was_what_it_cost_what_was_done_and_where_the_evidence_is(night: SeededNight):
    night.interrupted("killed", causes.KILLED, "node-1: rank 1 was killed by signal 9")
    [incident] = report_of(night).items
    assert (incident.nodes, incident.ranks, incident.steps_lost) == (("node-1",), (1,), 2)
    assert incident.seconds_lost is not None and "2 steps lost" in incident.cost
    assert incident.done == "a new incarnation goes on from the newest checkpoint; then it ran on node-0 from step 48"
    assert incident.command == f"slipway incidents show {incident.subject}.000001.0000"
    assert incident.path == f"/assets/killed/incident?view=partitions&partition={incident.subject}.000001.0000"
    assert not incident.needs_person


def test_a_training_that_failed_twice_and_was_given_up_asks_for_a_person_once(night: SeededNight):
    store = homes.running(night.home, "twice", 50)
    failed(store, causes.PROGRAM, "rank 0: division by zero")
    assert store.claim(2, homes.NODES, "incarnation 1 failed", "job watch")
    failed(store, causes.PROGRAM, "rank 0: division by zero again", 2)
    store.want("stop", "job watch", "2 of 2 failed starts", by_platform=True)
    report = report_of(night)
    [asks] = report.waiting
    assert "division by zero again" in asks.what and "slipway resume" in asks.todo


@pytest.mark.parametrize("noted", [True, False])
def test_what_a_person_reads_of_a_training_that_was_given_up_is_about_the_checkpoints_that_it_has(
    night: SeededNight, noted: bool
):
    """The trainer's own record of its end has its last step, of which there need be no checkpoint."""
    for recipe, steps, expected in (
        ("early", (), "slipway run early FIELD=VALUE"),
        ("late", (50,), "slipway branch late-"),
    ):
        store = homes.running(night.home, recipe, *steps)
        end = fence.Exit(1, "failed", "the loss is nan", 74, "trainer", time.time(), kind=causes.DIVERGED)
        fence.end(store.folder, end, Token(1))
        assert not noted or incidents.note_failure(store, end)
        store.want("stop", "job watch", "1 of 1 failed starts", by_platform=True)
        [asks] = [item for item in report_of(night).waiting if item.subject == store.id]
        assert expected in asks.todo and "checkpoint of step 74" not in asks.what


def test_what_waits_for_a_person_is_reported_however_old_it_is_and_what_is_over_is_not(night: SeededNight):
    night.interrupted("broken", causes.CONFIGURATION, "3 heads", goes_on=False)
    night.interrupted("killed", causes.KILLED, "rank 1 was killed")
    report = report_of(night, since=time.time() + 1)
    assert [item.cause for item in report.items] == [causes.CONFIGURATION]
    assert report.incidents == 0


def test_an_incident_that_recovers_now_comes_before_those_that_are_over(night: SeededNight):
    store = homes.running(night.home, "killed", 50)
    failed(store, causes.KILLED, "rank 1 was killed")
    night.survived("spiking")
    report = report_of(night)
    assert [item.going for item in report.items] == [True, False] and not report.waiting
    assert [title for title, _ in text.sections(report)] == ["Recovering", "Handled by the platform"]


def test_a_tier_that_takes_no_copies_any_more_is_red_once_for_all_trainings(night: SeededNight):
    night.tier_that_came_back("first", comes_back=False)
    night.tier_that_came_back("second", comes_back=False)
    [only] = report_of(night).items
    assert only.needs_person and only.subject == "tier backup"
    assert "first-" in only.what and "second-" in only.what


def test_a_damaged_checkpoint_is_set_aside_and_nobody_is_needed_while_an_earlier_one_is_whole(night: SeededNight):
    night.damaged_checkpoint("damaged")
    [only] = report_of(night).items
    assert "block 3 differs" in only.what and "on durable" in only.what
    assert only.done == "it is set aside; the newest intact checkpoint is that of step 50" and not only.needs_person


@pytest.mark.parametrize(
    ("standing", "by_hand", "applied", "needs"),
    [
        (Standing.REPAIR, False, True, True),
        (Standing.QUARANTINED, True, True, True),
        (Standing.QUARANTINED, False, False, True),
        (Standing.QUARANTINED, False, True, False),
        (Standing.DIAGNOSING, False, True, False),
        (Standing.SUSPECT, False, True, False),
        (Standing.RELEASED, False, True, False),
    ],
)
def test_a_node_needs_a_person_where_no_diagnosis_will_bring_it_back(
    night: SeededNight, standing: Standing, by_hand: bool, applied: bool, needs: bool
):
    night.node(standing, "two incidents", by_hand, applied)
    [only] = report_of(night).items
    assert (only.cause, only.needs_person, only.nodes) == (str(standing), needs, ("n7",))


def test_a_tier_that_is_nearly_full_is_red_and_one_with_room_is_not_there(night: SeededNight):
    now = time.time()
    for name, used in {"backup": 95, "nvme-node-0": 40}.items():
        with journal.Journal(night.durable / "storage" / f"{name}.journal") as samples:
            samples.append({"at": now, "used": used * 10**9, "capacity": 100 * 10**9})
    [only] = report_of(night).items
    assert (only.subject, only.cause, only.needs_person) == ("tier backup", "nearly full", True)
    assert "95% of 100.0 GB" in only.what


def test_a_training_whose_records_cannot_be_read_is_reported_and_hides_no_other(night: SeededNight):
    night.survived("spiking")
    broken = homes.running(night.home, "broken", 50)
    for path in (broken.folder / "claims").iterdir():
        path.write_text("{torn")
    report = report_of(night)
    assert {item.cause: item.needs_person for item in report.items} == {"unreadable": True, causes.SPIKE: False}


def test_a_training_that_a_person_paused_and_resumed_was_not_restarted_by_the_platform(night: SeededNight):
    store = homes.running(night.home, "paused", 50)
    store.want("stop", "ada by hand", "paused")
    store.record_exit(1, "stopped", "asked to stop", "ada by hand", homes.NODES, kind=causes.STOP_REQUESTED)
    store.want("run", "ada by hand", "resumed")
    go_on(store)
    item = of(report_of(night), "paused")
    assert (item.cause, item.needs_person) == ("stopped and resumed", False) and "stopped on request" in item.what


def test_a_quiet_night_says_that_nobody_is_needed(night: SeededNight):
    report = report_of(night)
    assert report.sentence.startswith("nothing waits for a person; 0 incidents")
    assert "Nothing happened." in text.digest(report)
    assert 'class="red"' not in page.html(report)


def test_the_digest_has_each_item_with_its_link_and_what_is_to_be_done(night: SeededNight):
    night.interrupted("broken", causes.CONFIGURATION, "3 heads", goes_on=False)
    digest = text.digest(report_of(night), "https://slipway.example:3000")
    assert "Waiting for a person" in digest and "to do: correct in the recipe" in digest
    assert "https://slipway.example:3000/assets/broken/incident?view=partitions" in digest


def test_the_page_shows_what_a_record_says_as_text_and_not_as_markup(night: SeededNight, tmp_path: Path):
    night.interrupted("killed", causes.PROGRAM, "rank 0: <script>alert(1)</script>")
    page.write(report_of(night), tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert all(
        mark in html for mark in ('lang="en"', 'name="viewport"', "prefers-color-scheme: dark", "<main ", "<h1>")
    )


def test_one_training_can_be_asked_about_alone(night: SeededNight):
    store = night.interrupted("killed", causes.KILLED, "rank 1 was killed")
    night.survived("spiking")
    report = morning.report(reading.read_facts(night.durable, night.since, only=store))
    assert [item.subject for item in report.items] == [store.id]


def test_a_training_that_a_person_stopped_after_a_failure_is_not_red(night: SeededNight):
    store = homes.running(night.home, "stopped", 50)
    failed(store, causes.KILLED, "rank 1 was killed")
    go_on(store)
    failed(store, causes.KILLED, "rank 1 was killed again", 2)
    store.want("stop", "ada by hand", "enough")
    assert not report_of(night).waiting


def test_who_reads_one_night_after_the_other_reads_what_is_over_only_once(
    night: SeededNight, monkeypatch: pytest.MonkeyPatch
):
    night.of_ten_faults()
    reader, read = reading.ReportReader(night.durable), list[TrainingStore]()
    first = reader.read(night.since)
    plain = TrainingStore.read

    def noted(store: TrainingStore) -> TrainingFacts:
        read.append(store)
        return plain(store)

    monkeypatch.setattr(TrainingStore, "read", noted)
    again = reader.read(night.since, first.until)
    assert again == first == reading.read_facts(night.durable, night.since, first.until)
    read.clear()
    reader.read(night.since)
    assert read and not [store.id for store in read if plain(store).over]


def test_what_changes_of_a_training_that_is_over_is_read_again(night: SeededNight):
    store = homes.ended(night.home, "finished", "succeeded", "all steps done", 50)
    reader = reading.ReportReader(night.durable)
    assert not reader.read(night.since).damages
    [commit] = store.commits()
    replicas.note_fault(store.folder, commit.name, "backup", replicas.DAMAGED, "a byte differs")
    assert [damage.training for damage in reader.read(night.since).damages] == [store.id]
    shutil.rmtree(store.folder)
    assert not reader.read(night.since).ends


def test_a_later_night_has_less_of_what_is_over_by_the_same_reader(night: SeededNight):
    night.of_ten_faults()
    reader = reading.ReportReader(night.durable)
    reader.read(night.since)
    later = time.time() + 60
    later_facts = reader.read(later)
    assert later_facts == reading.read_facts(night.durable, later, later_facts.until)
    assert {incident.id for incident in later_facts.incidents} < {
        incident.id for incident in reader.read(night.since).incidents
    }


def test_the_page_writes_a_cause_in_words_and_links_a_restart_to_its_training(night: SeededNight):
    night.of_ten_faults()
    html = page.html(report_of(night), "/")
    assert ": out of memory answered</h3>" in html
    assert re.search(r'<h3><a href="/assets/grown/training\?[^"]*">grown-[0-9a-f]{12}</a>: restart</h3>', html)
