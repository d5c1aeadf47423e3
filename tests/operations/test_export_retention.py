"""Exports on the durable tier: what nothing loads any more goes, and nobody who loads one is robbed of it."""

import os
import time
from pathlib import Path

import pytest

from slipway.operations import export_retention
from slipway.operations.export_retention import ExportLimits, RetainedExports, retain
from slipway.recipes.load import Recipes
from slipway.resources import exports
from slipway.resources.exports import EXPORTS
from slipway.resources.serving import wishes
from slipway.resources.short_jobs.attempts import ShortJob, newest
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import TrainingStore, all_trainings
from slipway.serving.records import ServedVersion, ServingRecords, ServingWish, SwitchPolicy, SwitchVerdict
from slipway.trainer.base import codec
from slipway.trainer.checkpoint.disk import publication
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.checkpoint.tiers.tier import DURABLE
from slipway.trainer.record import fence

MODEL, BY = "small", "a test"
NOW = ExportLimits(versions=1, hours=0.0, days=0.0)
"""Nothing stays for its age."""


@pytest.fixture
def tiers(tmp_path: Path) -> Tiers:
    return Tiers(durable=str(tmp_path), nvme=str(tmp_path / "nvme" / "{node}"))


@pytest.fixture
def records(tmp_path: Path) -> ServingRecords:
    return ServingRecords(tmp_path)


def exported(records: ServingRecords, number: int, model: str = MODEL) -> ServedVersion:
    """Version `number` of a model, with its export, which was made yesterday."""
    checkpoint = str(number) * 64
    folder = records.export(model, checkpoint)
    manifest = publication.write(folder, "test/1", {"weights": bytes(1000), "config.json": b"{}"})
    aged(folder)
    return ServedVersion(str(number), checkpoint, str(folder.relative_to(records.durable)), manifest)


def aged(folder: Path, hours: float = 25.0) -> None:
    """Let a folder be one that was made so long ago."""
    then = time.time() - hours * 3600
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then))


def answered(records: ServingRecords, version: ServedVersion, share: float = 1.0, outcome: str = "all") -> None:
    """Let a version be wanted, and judged unless the outcome is empty."""
    state = wishes.serve(records, MODEL, version, SwitchPolicy(share=share), False, BY, "a test")
    if outcome:
        records.judge(state, SwitchVerdict("all" if outcome == "all" else "back", "seen"))


def retained(tiers: Tiers, limits: ExportLimits = NOW, dry_run: bool = False) -> RetainedExports:
    report = retain(tiers, Recipes(), limits, dry_run, print)
    assert report.failed == []
    return report


def there(records: ServingRecords) -> str:
    """The first letters of the exports of the model."""
    return "".join(sorted(path.name[0] for path in records.exports(MODEL).iterdir()))


def test_what_answers_a_canary_and_the_version_before_stay_and_the_others_go(tiers: Tiers, records: ServingRecords):
    versions = [exported(records, number) for number in range(1, 6)]
    for version in versions[:3]:
        answered(records, version)
    answered(records, versions[3], share=0.1, outcome="")
    report = retained(tiers)
    assert there(records) == "234"
    assert set(report.going) == {versions[0].folder, versions[4].folder}
    assert report.bytes == sum(report.going.values()) > 2000
    why = {folder[-1]: reasons for folder, reasons in report.staying.items()}
    assert why["2"] == ("version 2 of small answered before",) and why["3"] == ("version 3 of small answers",)
    assert why["4"] == ("version 4 of small is about to answer",)


def test_a_dry_run_removes_nothing_and_lists_what_a_run_removes(tiers: Tiers, records: ServingRecords):
    for number in (1, 2):
        exported(records, number)
    planned = retained(tiers, dry_run=True)
    assert there(records) == "12"
    assert retained(tiers).going == planned.going and there(records) == ""


def test_going_back_is_possible_twice_after_a_stop(tiers: Tiers, records: ServingRecords):
    for number in (1, 2, 3):
        answered(records, exported(records, number))
    wishes.stop(records, MODEL, BY, "a test")
    retained(tiers)
    assert there(records) == "23"
    state = wishes.back(records, MODEL, BY, "a test")
    records.judge(state, SwitchVerdict("all", "seen"))
    before = wishes.back(records, MODEL, BY, "a test").coming
    assert before is not None and (records.durable / before.folder / "weights").exists()


def test_a_version_that_came_back_from_its_canary_goes(tiers: Tiers, records: ServingRecords):
    answered(records, exported(records, 1))
    answered(records, exported(records, 2), share=0.1, outcome="back")
    retained(tiers)
    assert there(records) == "1"


def test_what_was_wanted_a_short_while_ago_stays(tiers: Tiers, records: ServingRecords):
    folder = records.durable / exported(records, 1).folder
    assert exports.wanted_now(folder)
    day = ExportLimits(versions=1, hours=24.0, days=0.0)
    assert retained(tiers, day).staying == {
        str(folder.relative_to(records.durable)): ("it was wanted a short while ago",)
    }
    aged(folder)
    retained(tiers, day)
    assert not folder.exists() and not exports.wanted_now(folder)


def test_an_export_that_a_waiting_job_will_load_stays(tiers: Tiers, records: ServingRecords):
    version = exported(records, 1)
    request = {"version": codec.plain(version)}
    short_job = ShortJob("generate", "version 1", {"of": "1"}, ("true",), request)
    attempt = newest(records.durable, short_job)
    attempt.claim(short_job, ("node-0",), 1)
    assert retained(tiers).staying == {version.folder: (f"job {attempt.job_name} is under way",)}
    attempt.fail("it was stopped")
    assert set(retained(tiers).going) == {version.folder}


def test_nothing_is_removed_while_somebody_asks_for_a_version(tiers: Tiers, records: ServingRecords):
    exported(records, 1)
    with exports.wanting(records.durable, MODEL):
        [reasons] = retained(tiers).staying.values()
    assert "somebody asks for a version at this moment" in reasons[0] and there(records) == "1"


def test_an_export_that_is_wanted_while_it_is_set_aside_is_put_back(
    tiers: Tiers, records: ServingRecords, monkeypatch: pytest.MonkeyPatch
):
    version, set_aside = exported(records, 1), exports.set_aside

    def wished_meanwhile(durable: Path, export: exports.Export) -> str:
        """A wish from a machine that the lock does not reach."""
        wish = ServingWish("serve", BY, "a test", version)
        assert records.wish(records.state(MODEL), wish)
        return set_aside(durable, export)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(exports, "set_aside", wished_meanwhile)
        assert retained(tiers).going == {}
    assert there(records) == "1" and (records.durable / version.folder / "weights").exists()


def test_a_retention_that_was_killed_halfway_is_made_good_by_the_next(tiers: Tiers, records: ServingRecords):
    version = exported(records, 1)
    answered(records, version)
    [export] = exports.of_model(records.durable, MODEL)
    exports.set_aside(records.durable, export)
    retained(tiers)
    assert (records.durable / version.folder / "weights").exists()


def test_what_a_killed_export_left_goes_and_one_that_is_written_stays(tiers: Tiers, records: ServingRecords):
    old, new = (records.exports(MODEL) / name for name in (".1.old", ".1.new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(bytes(10))
    aged(old)
    report = retained(tiers, ExportLimits(versions=1, hours=24.0, days=30.0))
    assert [path for path in (old, new) if path.exists()] == [new]
    assert list(report.staying.values()) == [("it may be being written",)]


def test_a_model_whose_records_cannot_be_read_keeps_all_of_its_exports_and_the_others_go_on(
    tiers: Tiers, records: ServingRecords
):
    answered(records, exported(records, 1))
    exported(records, 2)
    other = exported(records, 3, "other")
    for record in (records.folder / MODEL / "wanted").glob("000001.*"):  # with its copy
        record.write_text("{")
    report = retain(tiers, Recipes(), NOW, False, print)
    assert set(report.going) == {other.folder} and there(records) == "12"
    [failed] = report.failed
    assert failed.startswith("model small: nothing more was removed: ") and "000001.json" in failed


def test_a_job_s_record_that_cannot_be_read_stops_all_before_anything_is_removed(tiers: Tiers, records: ServingRecords):
    exported(records, 1)
    job = records.durable / "short-jobs" / "generate-0" / "000001" / "job.json"
    job.parent.mkdir(parents=True)
    job.write_text("{")
    with pytest.raises(ValueError, match=r"job\.json"):
        retained(tiers)
    assert there(records) == "1"


def test_a_link_among_the_exports_is_left_alone(tiers: Tiers, records: ServingRecords, tmp_path: Path):
    exported(records, 1)
    target, export = tmp_path / "elsewhere", records.export(MODEL, "1" * 64)
    export.rename(target)
    export.symlink_to(target)
    assert retained(tiers).going == {} and (target / "weights").exists()


def trained(tiers: Tiers, name: str, init: str = "") -> TrainingStore:
    """A training with a checkpoint of step 5."""
    policy = RunPolicy(1, 1, 1, 30.0, 2, init=init)
    store = all_trainings(tiers).propose(Specification(name, {}, "0" * 64, "1" * 64), policy)
    assert store.claim(1, ("node-0",), "first start", BY)
    commit = fence.Commit(5, fence.Token(1), f"checkpoints/{store.id}/5", "0" * 64, {"loss": 1.0}, 1e9)
    fence.commit(store.folder, commit)
    replicas.record(store.folder, commit, DURABLE, 10)
    return store


def asked_for(tiers: Tiers, name: str) -> Path:
    """An export that a person asked for 31 days ago."""
    folder = tiers.durable_path / EXPORTS / name
    publication.write(folder, "test/1", {"weights": bytes(10)})
    aged(folder, 31 * 24)
    return folder


def test_what_a_person_asked_for_goes_after_its_days_while_its_checkpoint_can_give_it_again(tiers: Tiers):
    store = trained(tiers, "one")
    again, young = (asked_for(tiers, f"{store.id}.5-{kind}") for kind in ("bf16", "fp32"))
    last_copy = asked_for(tiers, f"{store.id}.6-bf16")
    starts = asked_for(tiers, f"{trained(tiers, 'two').id}.5-bf16")
    trained(tiers, "three", init=str(starts))
    os.utime(young)
    report = retained(tiers, ExportLimits())
    assert report.going.keys() == {f"exports/{again.name}"}
    assert [path.exists() for path in (again, young, last_copy, starts)] == [False, True, True, True]
    assert "cannot be made again" in report.staying[f"exports/{last_copy.name}"][0]
    assert "three" in report.staying[f"exports/{starts.name}"][0]


def test_the_operation_shows_what_goes_and_what_stays_and_removes_nothing_when_it_is_dry(
    tiers: Tiers, records: ServingRecords
):
    new, old = exported(records, 1), exported(records, 2)
    answered(records, new)
    old_bytes = sum(path.stat().st_size for path in (records.durable / old.folder).iterdir())
    for dry_run in (True, False):
        ops = {"ops": {"retain_exports": {"config": {"dry_run": dry_run}}}}
        done = export_retention.job(Recipes()).execute_in_process(ops, resources={"tiers": tiers})
        [output] = [event for event in done.all_events if event.event_type_value == "STEP_OUTPUT"]
        metadata = output.step_output_data.metadata
        going, staying = metadata["going"].value, metadata["staying"].value
        assert going == {old.folder: old_bytes} and staying == {new.folder: ["version 1 of small answers"]}
        assert there(records) == ("12" if dry_run else "1")
