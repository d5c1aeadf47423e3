"""Checkpoints on several tiers: written once, copied to other tiers, and restored from any tier."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.checkpoint.disk import encryption, publication, verification
from slipway.trainer.checkpoint.retention import nvme
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.checkpoint.tiers.replicator import Copy, Replicator
from slipway.trainer.config.operation import RetentionRule
from slipway.trainer.record import fence, ledger
from slipway.trainer.record.fence import Commit, Token
from tests.conftest import until
from tests.trainer.conftest import STEPS, Training, wait

ALWAYS = 1e-6
"""Minutes so short that a save is due at every step."""
SECRET = bytes(range(32)).hex()
slow = pytest.mark.slow


def committed(tmp_path: Path, step: int, root: str = "durable", tier: str = "durable") -> Commit:
    folder = f"checkpoints/tiny/{step:09d}.{Token(1)}"
    manifest = publication.write(tmp_path / root / folder, "layout/1", {"model": b"weights of %d" % step})
    value = Commit(step, Token(1), folder, manifest, tier=tier)
    fence.commit(tmp_path / "store", value)
    return value


def copy_of(tmp_path: Path, commit: Commit) -> Copy:
    return Copy(tmp_path / "store", commit, tmp_path / "durable" / commit.folder, "backup", str(tmp_path / "backup"))


def events(tmp_path: Path, name: str) -> list[dict[str, Any]]:
    return [event for event in ledger.read(tmp_path / "store") if event["event"] == name]


@pytest.fixture
def claimed(tmp_path: Path) -> Path:
    fence.claim(tmp_path / "store", Token(1), nodes=(), cause="a test", by="test")
    (tmp_path / "backup").mkdir()
    return tmp_path


def test_a_complete_copy_is_put_on_record(claimed: Path):
    commit, replicator = committed(claimed, 5), Replicator()
    replicator.request(copy_of(claimed, commit))
    replicator.finish(60)
    assert replicas.holders(claimed / "store", [commit]) == {commit.name: ("durable", "backup")}
    assert verification.read_files(claimed / "backup" / commit.folder, commit.manifest) == {"model": b"weights of 5"}
    [event] = events(claimed, "replicated")
    assert (event["step"], event["tier"]) == (5, "backup")


def test_a_failed_copy_is_an_event_and_the_next_commit_replaces_it(claimed: Path):
    first, second, replicator = committed(claimed, 5), committed(claimed, 10), Replicator()
    (claimed / "backup").rmdir()
    (claimed / "backup").write_bytes(b"in the way")
    replicator.request(copy_of(claimed, first))
    until(lambda: events(claimed, "replication_failed"), "the event")
    assert "Not a directory" in events(claimed, "replication_failed")[0]["reason"]
    (claimed / "backup").unlink()
    (claimed / "backup").mkdir()
    replicator.request(copy_of(claimed, second))
    replicator.finish(60)
    assert [event["step"] for event in events(claimed, "replicated")] == [10]


def test_a_damaged_source_is_not_copied_and_not_tried_again(claimed: Path):
    commit, replicator = committed(claimed, 5), Replicator()
    (claimed / "durable" / commit.folder / "model").write_bytes(b"weights of 6")
    replicator.request(copy_of(claimed, commit))
    replicator.finish(60)
    assert replicator.commits_in_progress() == set()
    assert replicas.holders(claimed / "store", [commit]) == {commit.name: ("durable",)}
    assert "model: found BLAKE3" in events(claimed, "replication_failed")[0]["reason"]


def on_nvme(tmp_path: Path) -> list[int]:
    return sorted(int(path.name.split(".")[0]) for path in (tmp_path / "nvme/checkpoints/tiny").iterdir())


def test_the_nvme_keeps_the_last_and_a_removed_commit_is_pruned_unless_another_tier_holds_it(claimed: Path):
    commits = [committed(claimed, step, "nvme", "nvme") for step in (5, 10, 15, 20)]
    replicas.record(claimed / "store", commits[0], "durable", 7)
    rule = RetentionRule(minutes=15, last=2)
    gone = nvme.remove_surplus(claimed / "store", claimed / "nvme/checkpoints/tiny", rule, [], Token(1))
    assert sorted(gone) == [commits[0].name, commits[1].name]
    assert on_nvme(claimed) == [15, 20]
    assert [commit.step for commit in fence.commits(claimed / "store")] == [5, 15, 20]
    assert replicas.holders(claimed / "store", commits[:1]) == {commits[0].name: ("durable",)}


def test_a_checkpoint_that_is_being_copied_or_saved_stays_on_the_nvme(claimed: Path):
    commits = [committed(claimed, step, "nvme", "nvme") for step in (5, 10)]
    publication.write(
        claimed / f"nvme/checkpoints/tiny/{15:09d}.{Token(1)}", "layout/1", {"model": b"not committed yet"}
    )
    publication.write(claimed / f"nvme/checkpoints/tiny/{7:09d}.{Token(1)}", "layout/1", {"model": b"never committed"})
    nvme.remove_surplus(
        claimed / "store",
        claimed / "nvme/checkpoints/tiny",
        RetentionRule(minutes=15, last=1),
        [commits[0].name],
        Token(1),
    )
    assert on_nvme(claimed) == [5, 10, 15]


def stored(**tiers: dict[str, float]) -> dict[str, Any]:
    """The section `storage`: the named tiers are due at every step, the others never by time."""
    rules: dict[str, Any] = {tier: {"minutes": 0, "last": 100} for tier in ("nvme", "durable", "backup")}
    return {
        "cost_share": 1.0,
        **rules,
        **{tier: {"minutes": ALWAYS, "last": 100, **rule} for tier, rule in tiers.items()},
    }


def configured(training: Training, storage: dict[str, Any], steps: int = STEPS) -> Training:
    if not (training.folder / "backup").exists():
        (training.folder / "backup").mkdir()
    training.configure(run={"steps": steps}, placement={"backup": str(training.folder / "backup")})
    document = json.loads(training.config.read_bytes())
    training.config.write_text(json.dumps({**document, "storage": storage}))
    return training


def killed(training: Training, storage: dict[str, Any], when: Callable[[], object]) -> int:
    """Start a training without an end, and kill it when `when` is true; the step of the newest commit."""
    process = configured(training, storage, steps=1_000_000).start()
    until(when, "the moment to end it")
    process.kill()
    wait(process)
    return training.commits()[-1].step


def resumed_step(training: Training, storage: dict[str, Any], steps: int) -> int:
    """Run the training to its end; the step of the checkpoint that it resumed from."""
    ended = configured(training, storage, steps).run()
    assert ended.code == 0, ended.err
    [restored] = training.events("restored")
    return int(restored["step"])


def holders(training: Training) -> dict[int, tuple[str, ...]]:
    commits = training.commits()
    tiers_by_commit = replicas.holders(training.store, commits)
    return {commit.step: tiers_by_commit[commit.name] for commit in commits}


@slow
def test_a_training_saves_to_each_tier_at_its_own_interval(training: Training):
    configured(training, stored(nvme={"last": 2}, backup={})).completed()
    tiers_by_step = holders(training)
    assert tiers_by_step[STEPS] == ("durable", "backup")
    assert all("durable" in tiers_by_step[step] for step in (5, 10, 15))
    assert sum("nvme" in tiers for tiers in tiers_by_step.values()) == 2
    for commit in training.commits():
        for tier, root in {"durable": training.durable, "backup": training.folder / "backup"}.items():
            if tier in tiers_by_step[commit.step]:
                assert verification.read_files(root / commit.folder, commit.manifest)


@slow
def test_a_training_resumes_from_the_backup_when_the_durable_copies_are_lost(training: Training):
    rules = stored(backup={})
    newest = killed(training, rules, lambda: any("backup" in tiers for tiers in holders(training).values()))
    copied = max(step for step, tiers in holders(training).items() if "backup" in tiers)
    shutil.rmtree(training.durable / "checkpoints")
    (training.durable / "checkpoints" / "tiny").mkdir(parents=True)
    assert resumed_step(training, rules, newest + 3) == copied


@slow
def test_a_training_resumes_from_the_nvme_when_only_the_nvme_holds_the_newest(training: Training):
    rules = stored(nvme={})

    def only_on_nvme() -> bool:
        return bool(training.commits()) and holders(training)[training.commits()[-1].step] == ("nvme",)

    newest = killed(training, rules, only_on_nvme)
    [commit] = [commit for commit in training.commits() if commit.step == newest]
    shutil.rmtree(training.durable / commit.folder, ignore_errors=True)
    assert resumed_step(training, rules, newest + 3) == newest


@slow
def test_a_node_that_lost_its_nvme_resumes_from_the_durable_tier(training: Training):
    rules = stored(nvme={})
    newest = killed(training, rules, lambda: any("durable" in tiers for tiers in holders(training).values()))
    durable = max(step for step, tiers in holders(training).items() if "durable" in tiers)
    shutil.rmtree(training.nvme / "checkpoints")
    assert resumed_step(training, rules, newest + 3) == durable
    assert training.events("set_aside") == []


@slow
def test_a_backup_that_cannot_be_written_does_not_stop_the_training(training: Training):
    (training.folder / "backup").write_bytes(b"in the way")
    configured(training, stored())
    process = training.run()
    assert process.code == 0, process.err
    assert training.events("replication_failed")


@pytest.fixture
def key(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "key"
    path.write_text(SECRET)
    yield path


@slow
def test_an_encrypted_training_resumes_and_all_its_tensors_are_encrypted(training: Training, key: Path):
    rules = {**stored(), "key_file": str(key)}
    newest = killed(training, rules, training.commits)
    assert resumed_step(training, rules, newest + 3) == newest
    files = list(training.durable.glob("checkpoints/*/*/*.safetensors"))
    assert files and all(encryption.is_encrypted(path.read_bytes()) for path in files)


@slow
def test_with_another_key_a_training_does_not_start_and_sets_nothing_aside(training: Training, key: Path):
    rules = {**stored(), "key_file": str(key)}
    killed(training, rules, training.commits)
    before = training.commits()
    key.write_text("ff" * 32)
    ended = training.run()
    assert ended.code == 2
    assert "encrypted with key" in ended.err and "storage.key_file holds key" in ended.err
    assert training.commits() == before
    assert fence.set_aside_reasons(training.store) == {}


def test_a_bad_key_file_is_reported_before_the_training_starts(training: Training, key: Path):
    key.write_text("not a key")
    ended = configured(training, {**stored(), "key_file": str(key)}).run()
    assert ended.code == 2
    assert f"storage.key_file: {key}: found 9 bytes, expected 64 hex digits" in ended.err
    assert fence.newest_claim(training.store) is None
