"""Removal: the one door through which a checkpoint leaves a tier, and what keeps it from going."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.base import removal
from slipway.trainer.checkpoint.disk import publication, verification
from slipway.trainer.checkpoint.retention import holds, nvme
from slipway.trainer.checkpoint.retention.removal import Remover, Unknown
from slipway.trainer.checkpoint.tiers import replicas, ring
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier
from slipway.trainer.checkpoint.tiers.ring import NodeRing, RingNode
from slipway.trainer.config.operation import RetentionRule
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Commit, Exit, Token

pytestmark = pytest.mark.pure

UNDER = "checkpoints/tiny"


def written(root: Path, step: int, token: Token) -> str:
    return publication.write(root / UNDER / f"{step:09d}.{token}", "layout/1", {"model": b"weights of %d" % step})


def committed(home: Path, step: int, tier: str = "durable", token: Token | None = None) -> Commit:
    token = token or Token(1)
    commit = Commit(step, token, f"{UNDER}/{step:09d}.{token}", written(home / tier, step, token), tier=tier)
    fence.commit(home / "tiny", commit)
    return commit


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Tiers, and the training `tiny` with its first claim."""
    for name in ("durable", "nvme"):
        (tmp_path / name).mkdir()
    fence.claim(tmp_path / "tiny", Token(1), nodes=(), cause="a test", by="test")
    return tmp_path


def remover(home: Path, **options: Any) -> Remover:
    return Remover(home / "tiny", "durable", FolderTier(home / "durable"), **options)


def there(home: Path, tier: str = "durable") -> list[int]:
    return sorted(int(name[-21:-12]) for name in FolderTier(home / tier).folders(UNDER))


def ended(home: Path) -> None:
    fence.record_exit(home / "tiny", Exit(1, "failed", "given up", 0, "test", 1.0))


def test_a_valid_checkpoint_is_not_removed_and_a_pruned_one_is(home: Path):
    first, second = committed(home, 5), committed(home, 10)
    fence.prune(home / "tiny", first, "a test")
    assert remover(home).remove(first.folder) == ""
    assert remover(home).remove(second.folder) == "it is valid"
    assert there(home) == [10]


def test_what_the_newest_claim_seals_stays_though_its_record_is_lost(home: Path):
    first, _ = committed(home, 5), committed(home, 10)
    fence.claim(home / "tiny", Token(2), nodes=(), cause="a test", by="test")
    (home / "tiny" / "commits" / f"{first.name}.json").unlink()
    assert remover(home).remove(first.folder) == "the newest claim seals it"


def test_what_a_newer_token_wrote_stays(home: Path):
    committed(home, 5)
    written(home / "durable", 7, Token(2))
    assert "newer than the newest claim" in remover(home).remove(f"{UNDER}/{7:09d}.{Token(2)}")


def test_a_folder_of_another_name_stays(home: Path):
    committed(home, 5)
    publication.write(home / "durable" / UNDER / "mine", "layout/1", {})
    assert remover(home).remove(f"{UNDER}/mine") == "it does not have the name of a checkpoint"


def test_without_a_commit_on_record_nothing_is_removed(home: Path):
    written(home / "durable", 7, Token(1))
    (home / "tiny" / "commits").mkdir(exist_ok=True)
    with pytest.raises(Unknown, match="found no commit"):
        remover(home).remove(f"{UNDER}/{7:09d}.{Token(1)}")
    assert there(home) == [7]


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_listing_that_fails_removes_nothing(home: Path, monkeypatch: pytest.MonkeyPatch, number: int):
    pruned = committed(home, 5)
    committed(home, 10)
    fence.prune(home / "tiny", pruned, "a test")
    scandir = os.scandir

    def failing(path: Any) -> Any:
        if Path(path).name == "claims":
            raise OSError(number, os.strerror(number), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(OSError, match="claims"):
        remover(home).remove(pruned.folder)
    with pytest.raises(OSError, match="claims"):
        nvme.remove_surplus(home / "tiny", home / "durable" / UNDER, RetentionRule(minutes=0, last=1), [], Token(1))
    assert there(home) == [5, 10]


def test_a_reference_keeps_a_pruned_checkpoint_and_is_asked_with_the_manifest_on_the_tier(home: Path):
    pruned = committed(home, 5)
    committed(home, 10)
    fence.prune(home / "tiny", pruned, "a test")
    known = {(pruned.folder, pruned.manifest): ["model a, version 1"]}
    door = remover(home, references=lambda folder, manifest: known.get((folder, manifest), []))
    assert door.remove(pruned.folder) == "model a, version 1"
    assert there(home) == [5, 10]


def test_a_checkpoint_that_a_process_holds_stays_until_it_is_released(home: Path):
    pruned = committed(home, 5)
    committed(home, 10)
    fence.prune(home / "tiny", pruned, "a test")
    with holds.holding(home / "tiny", [pruned.name], "a replay", "a test"):
        assert remover(home).remove(pruned.folder) == "a replay holds it: a test"
    assert remover(home).remove(pruned.folder) == ""


def test_a_node_withdraws_nothing_that_is_held(home: Path):
    """Who reads it looks for the tiers that hold it on record."""
    first, *_ = (committed(home, step, "nvme") for step in (5, 10, 15))
    with holds.holding(home / "tiny", [first.name], "a replay", "a test"):
        nvme.remove_surplus(home / "tiny", home / "nvme" / UNDER, RetentionRule(minutes=0, last=1), [], Token(1))
        tiers_by_commit = replicas.holders(home / "tiny", fence.commits(home / "tiny"))
        assert tiers_by_commit[first.name] == ("nvme",) and 5 in there(home, "nvme")


def test_a_hold_that_a_killed_process_left_ends(home: Path):
    with holds.holding(home / "tiny", ["a"], "a replay", "a test"):
        [path] = (home / "tiny" / "holds").iterdir()
        assert holds.reasons(home / "tiny", "a", path.stat().st_mtime + 1)
        assert holds.reasons(home / "tiny", "a", path.stat().st_mtime + 8 * 86_400) == []


def test_a_superseded_process_removes_nothing(home: Path):
    for step in (5, 10, 15):
        committed(home, step, "nvme")
    fence.claim(home / "tiny", Token(2), nodes=(), cause="a test", by="test")
    with pytest.raises(fence.Superseded):
        nvme.remove_surplus(home / "tiny", home / "nvme" / UNDER, RetentionRule(minutes=0, last=1), [], Token(1))
    assert there(home, "nvme") == [5, 10, 15]
    assert len(fence.commits(home / "tiny")) == 3


def test_a_link_in_the_way_is_refused_and_what_it_points_to_stays(home: Path):
    precious = home / "precious" / "model"
    precious.parent.mkdir()
    precious.write_bytes(b"mine")
    (home / "durable" / "checkpoints").symlink_to(home)
    for name in ("checkpoints/precious", "checkpoints"):
        with pytest.raises(OSError, match="a symbolic link"):
            removal.remove_folder(home / "durable", name)
    with pytest.raises(OSError, match="a symbolic link"):
        removal.remove_file(home / "durable", "checkpoints/precious/model")
    assert precious.read_bytes() == b"mine"


def test_a_link_in_a_removed_folder_goes_and_what_it_points_to_stays(home: Path):
    (home / "durable" / "folder").mkdir()
    (home / "durable" / "folder" / "link").symlink_to(home / "tiny")
    assert removal.remove_folder(home / "durable", "folder")
    assert not removal.remove_folder(home / "durable", "folder")
    assert (home / "tiny" / "claims").is_dir()


def test_the_two_newest_that_no_lasting_tier_covers_stay_on_the_nvme(home: Path):
    commits = [committed(home, step, "nvme") for step in (5, 10, 15, 20)]
    replicas.record(home / "tiny", commits[1], "durable", 7)
    nvme.remove_surplus(home / "tiny", home / "nvme" / UNDER, RetentionRule(minutes=0, last=1), [], Token(1))
    assert there(home, "nvme") == [15, 20]


def test_a_node_copies_the_newest_step_to_the_durable_tier_before_it_clears_its_nvme(home: Path):
    committed(home, 5)
    newer = [committed(home, step, "nvme") for step in (10, 15)]
    ended(home)
    done = nvme.clear(home / "nvme", home / "durable", home / "tiny")
    assert (done.copied, sorted(done.removed), done.retained) == (
        [newer[1].name],
        [commit.name for commit in newer],
        {},
    )
    assert not (home / "nvme" / UNDER).exists()
    assert there(home) == [5, 15]
    assert replicas.holders(home / "tiny", fence.commits(home / "tiny"))[newer[1].name] == ("durable",)


def test_a_node_keeps_the_newest_step_while_the_durable_tier_cannot_take_it(home: Path):
    newest = committed(home, 10, "nvme")
    ended(home)
    (home / "durable").rmdir()
    (home / "durable").write_bytes(b"in the way")
    with pytest.raises(Exception, match="Not a directory"):
        nvme.clear(home / "nvme", home / "durable", home / "tiny")
    assert there(home, "nvme") == [10]
    assert fence.commits(home / "tiny") == [newest]


def test_a_damaged_newest_step_is_set_aside_and_the_one_before_it_is_copied(home: Path):
    before, newest = committed(home, 10, "nvme"), committed(home, 15, "nvme")
    (home / "nvme" / newest.folder / "model").write_bytes(b"rust")
    ended(home)
    assert nvme.clear(home / "nvme", home / "durable", home / "tiny").copied == [before.name]
    assert list(fence.set_aside_reasons(home / "tiny")) == [newest.name]


def test_a_node_clears_nothing_of_a_training_that_was_started_again(home: Path):
    committed(home, 10, "nvme")
    ended(home)
    fence.claim(home / "tiny", Token(2), nodes=(), cause="a test", by="test")
    assert "has not ended" in "".join(nvme.clear(home / "nvme", home / "durable", home / "tiny").retained.values())
    assert there(home, "nvme") == [10]


def test_nodes_that_have_a_commit_together_copy_it_together_before_they_clear_their_nvme(home: Path):
    """Of the three files each node has two, one of them damaged on the first node."""
    folder = f"{UNDER}/{10:09d}.{Token(1)}"
    files: dict[str, bytes | publication.Blocks] = {"0": b"of rank 0", "1": b"of rank 1", "progress.json": b"{}"}
    manifest = publication.write(home / "nvme" / folder, "layout/1", files)
    shutil.copytree(home / "nvme", home / "other")
    (home / "nvme" / folder / "1").unlink()
    (home / "nvme" / folder / "progress.json").write_bytes(b"[]")
    (home / "other" / folder / "0").unlink()
    commit = Commit(10, Token(1), folder, manifest, tier="nvme")
    ring.record_spread(home / "tiny", commit.name, NodeRing((RingNode("a", "", (0,)), RingNode("b", "", (1,)))))
    fence.commit(home / "tiny", commit)
    ended(home)
    first = nvme.clear(home / "nvme", home / "durable", home / "tiny")
    assert first.copied == first.removed == [] and list(first.retained) == [commit.name]
    second = nvme.clear(home / "other", home / "durable", home / "tiny")
    assert second.copied == second.removed == [commit.name]
    assert verification.read_files(home / "durable" / folder, manifest) == files
    assert nvme.clear(home / "nvme", home / "durable", home / "tiny").removed == [commit.name]
