"""Upgrade: a migration is planned, carried out, taken back, and survives a kill at every write.

No release has a migration yet. The one of these tests gives notes a version, and belongs to a release to come.
"""

import functools
import json
from pathlib import Path

import pytest

from slipway.operations.upgrade import migrations, upgrading
from slipway.operations.upgrade.migrations import Migration
from slipway.resources import state
from tests.kills import killed_at

OLD, NEW = state.STATE, state.STATE + 1
FORMATS = "notes/1 to /2"
NOTE, NEWER_NOTE, OTHER = "notes/a.json", "notes/b.json", "trainings/other.json"


def migrated(data: bytes) -> bytes | None:
    """The second version of a note; None for a note that has it. Raises ValueError for what is no note."""
    note = json.loads(data)
    if note["version"] == 2:
        return None
    return json.dumps({"version": 2, "lines": note["text"].split()}).encode()


@pytest.fixture(autouse=True)
def release_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is of a release with one more state, to which the migration of notes leads."""
    monkeypatch.setattr(state, "RELEASES", {OLD: "0.2", NEW: "0.3"})
    monkeypatch.setattr(state, "STATE", NEW)
    monkeypatch.setattr(migrations, "MIGRATIONS", (Migration(NEW, FORMATS, "notes/*.json", migrated),))


@pytest.fixture(params=[True, False], ids=["marked", "without a mark"])
def durable(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The durable tier that the release before left."""
    return tier(tmp_path / "durable", marked=request.param)


def tier(folder: Path, marked: bool = True) -> Path:
    for path, data in {
        NOTE: b'{"version": 1, "text": "a b"}',
        NEWER_NOTE: b'{"version": 2, "lines": ["c"]}',
        OTHER: b"{}",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    if marked:
        state.write(folder, OLD)
    return folder


def undone(durable: Path) -> upgrading.UpgradePlan:
    return upgrading.undo(durable, "ada")


def upgraded(durable: Path) -> upgrading.UpgradePlan:
    return upgrading.upgrade(durable, "ada", lambda: "")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def data_files(durable: Path) -> dict[str, bytes]:
    """Every file but the mark and the records of upgrades."""
    return {
        path: data
        for path, data in contents(durable).items()
        if path != state.FILE and not path.startswith(upgrading.FOLDER)
    }


def mark_of(durable: Path) -> int | None:
    mark = state.state_of(durable)
    return mark.state if mark else None


def test_a_plan_names_what_changes_and_changes_nothing(durable: Path):
    before = contents(durable)
    plan = upgrading.plan(durable, "ada")
    assert [(change.path, change.formats) for change in plan.changes] == [(NOTE, FORMATS)]
    assert (plan.was, plan.to, dict(plan.problems)) == (OLD, NEW, {})
    assert contents(durable) == before


def test_a_tier_of_an_earlier_release_is_refused_until_it_is_upgraded(durable: Path):
    with pytest.raises(ValueError, match=r"found what Slipway 0\.2 wrote, with 1 files to migrate.*: slipway upgrade"):
        upgrading.ready(durable)
    upgraded(durable)
    upgrading.ready(durable)
    assert mark_of(durable) == NEW


def test_an_upgrade_migrates_what_has_the_earlier_version_and_nothing_else(durable: Path):
    before = data_files(durable)
    upgraded(durable)
    assert data_files(durable) == {**before, NOTE: b'{"version": 2, "lines": ["a", "b"]}'}


def test_a_second_upgrade_has_nothing_to_do(durable: Path):
    upgraded(durable)
    before = contents(durable)
    assert upgraded(durable).changes == ()
    assert contents(durable) == before


def test_an_upgrade_that_is_taken_back_leaves_every_byte_as_it_was(durable: Path):
    before, mark = data_files(durable), mark_of(durable)
    upgraded(durable)
    assert data_files(durable) != before
    undone(durable)
    assert (data_files(durable), mark_of(durable)) == (before, mark)
    with pytest.raises(ValueError, match="found no upgrade, expected one that can be taken back"):
        upgrading.undo(durable, "ada")


def test_what_was_added_since_the_upgrade_is_not_taken_back(durable: Path):
    upgraded(durable)
    with (durable / NOTE).open("ab") as note:
        note.write(b"more\n")
    before = contents(durable)
    with pytest.raises(ValueError, match=rf"{NOTE}: found a file that was changed since the upgrade"):
        upgrading.undo(durable, "ada")
    assert contents(durable) == before


def test_a_file_that_makes_no_sense_stays_as_it_is_and_is_named(durable: Path):
    (durable / NOTE).write_bytes(b"no note")
    report = upgraded(durable)
    assert list(report.problems) == [NOTE] and report.changes == ()
    assert (durable / NOTE).read_bytes() == b"no note"


@pytest.mark.parametrize("back", [False, True], ids=["upgrade", "undo"])
def test_a_kill_at_any_write_leaves_what_the_next_one_finishes(back: bool, tmp_path: Path):
    """The outcome is one of two whole states, whoever comes next."""
    done = tier(tmp_path / "done")
    before = data_files(done)
    upgraded(done)
    after = data_files(done)
    for write in range(100):
        durable = tier(tmp_path / str(write))
        if back:
            upgraded(durable)
        killed = killed_at(write, functools.partial(undone if back else upgraded, durable))
        upgrading.finish(durable)
        assert (data_files(durable), mark_of(durable)) in [(before, OLD), (after, NEW)]
        upgraded(durable)
        assert data_files(durable) == after
        if not killed:
            break
    assert 2 < write < 99


def test_a_tier_of_a_newer_release_is_refused_with_one_message(durable: Path):
    (durable / state.FILE).write_text(json.dumps({"state": 7, "version": "0.9", "later": {"fields": []}}))
    for act in (upgrading.ready, upgraded, lambda at: upgrading.plan(at, "ada")):
        with pytest.raises(ValueError, match=rf"found state 7, which Slipway 0\.9 wrote, expected {NEW} or older"):
            act(durable)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"state": "x", "version": 1}', b"\xff", b"[" * 100_000])
def test_a_mark_that_says_nothing_is_refused_by_name(data: bytes, tmp_path: Path):
    (tmp_path / state.FILE).write_bytes(data)
    with pytest.raises(ValueError, match=r"state\.json: found no state"):
        state.refuse_newer(tmp_path)


def test_a_new_tier_gets_the_mark_of_this_release(tmp_path: Path):
    upgrading.ready(tmp_path)
    mark = state.state_of(tmp_path)
    assert mark is not None and (mark.state, mark.version) == (NEW, "0.3")
