"""Re-sealing: checkpoints open with the new key alone, no byte of them is written again, and a kill costs nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.resources.trainings.checkpoints import UNKNOWN_KEY, Resealed, reseal_all, resealing_sentences
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings
from slipway.trainer.checkpoint.disk import encryption, publication
from slipway.trainer.checkpoint.disk.encryption import Key, WrongKey
from slipway.trainer.checkpoint.disk.resealing import RECORD
from slipway.trainer.checkpoint.tiers import copying, replicas
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier
from slipway.trainer.checkpoint.tiers.object_tier import ObjectTier
from slipway.trainer.checkpoint.tiers.tier import Tier
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Commit, Token
from tests.conftest import until
from tests.s3 import Server

OLD, NEW, NEXT = (Key(bytes([number]) * 32) for number in (1, 2, 3))
FILES = {"model-0": b"weights" * 40, "model-1": b"moments" * 40}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Sealed:
    """A training with encrypted checkpoints on two tiers."""

    def __init__(self, root: Path) -> None:
        self.root, self.key_file = root, root / "key"
        self.has(OLD)
        operation = {"storage": {"key_file": str(self.key_file)}}
        run_policy = RunPolicy(1, 1, 1, 60.0, 3, operation=operation)
        self.store = Trainings(root / "durable" / "trainings").propose(
            Specification("tiny", {}, "0" * 64, ""), run_policy
        )
        self.store.want("run", "test", "the test wants it")
        assert self.store.claim(1, ("node-0",), "first start", "test")
        (root / "backup").mkdir()
        self.tiers: dict[str, Tier] = {"durable": FolderTier(root / "durable"), "backup": FolderTier(root / "backup")}

    def has(self, *keys: Key) -> None:
        """The key file has these keys, the newest first."""
        self.key_file.write_text("\n".join(key.secret.hex() for key in keys))

    def saved(self, step: int, key: Key = OLD, backup: bool = True) -> Commit:
        folder = f"checkpoints/{self.store.id}/{step:09d}.{Token(1)}"
        files = {name: b"".join(encryption.encrypt([data], key)) for name, data in FILES.items()}
        manifest = publication.write(self.root / "durable" / folder, "test/1", {**files, "progress.json": b"{}"})
        commit = Commit(step, Token(1), folder, manifest)
        fence.commit(self.store.folder, commit)
        if backup:
            size = copying.replicate(self.root / "durable" / folder, self.tiers["backup"], folder, manifest)
            assert replicas.record(self.store.folder, commit, "backup", size)
        return commit

    def resealed(self, dry_run: bool = False) -> Resealed:
        return reseal_all([self.store], self.tiers, dry_run)

    def opens(self, commit: Commit, tier: str = "durable") -> bool:
        """Whether every file of a copy opens with the keys there are now."""
        folder, key = self.root / tier / commit.folder, encryption.read_key(self.key_file)
        return all(encryption.read(folder / name, 0, len(data), key) == data for name, data in FILES.items())


@pytest.fixture
def sealed(tmp_path: Path) -> Sealed:
    return Sealed(tmp_path)


def test_all_copies_open_with_the_new_key_alone_and_no_byte_of_them_is_another(sealed: Sealed):
    commit = sealed.saved(1)
    before = {tier: files_of(sealed.root / tier / commit.folder) for tier in sealed.tiers}
    sealed.has(NEW, OLD)
    done = sealed.resealed()
    assert (len(done.sealed), done.needed, done.failed, done.keys) == (2, {}, [], [NEW.id])
    sealed.has(NEW)
    for tier in sealed.tiers:
        assert sealed.opens(commit, tier)
        after = files_of(sealed.root / tier / commit.folder)
        assert after.pop(RECORD) and after == before[tier]


def test_a_copy_in_an_object_store_opens_with_the_new_key_alone_once_it_is_sealed_and_fetched(
    sealed: Sealed, s3: Server, tmp_path: Path
):
    sealed.tiers["backup"] = ObjectTier(str(s3.new_bucket()))
    commit = sealed.saved(1)
    for newest, before in ((NEW, OLD), (NEXT, NEW)):  # the second one writes over the record of the first
        sealed.has(newest, before)
        assert len(sealed.resealed().sealed) == 2
    sealed.has(NEXT)
    assert not sealed.resealed(dry_run=True).needed
    back = tmp_path / "back" / commit.folder
    copying.fetch(sealed.tiers["backup"], commit.folder, commit.manifest, back)
    key = encryption.read_key(sealed.key_file)
    assert {name: encryption.read(back / name, 0, len(data), key) for name, data in FILES.items()} == FILES


def test_a_key_that_something_needs_is_named_with_what_needs_it(sealed: Sealed):
    sealed.saved(1)
    sealed.has(NEW, OLD)
    done = sealed.resealed(dry_run=True)
    assert done.needed == {OLD.id: [f"{sealed.store.id}@1 on durable", f"{sealed.store.id}@1 on backup"]}
    assert not list(sealed.root.rglob(RECORD))
    assert f"2 copies still need key {OLD.id}" in resealing_sentences(done)[-1]
    sealed.resealed()
    assert resealing_sentences(sealed.resealed(dry_run=True)) == [
        f"all copies use {NEW.id}: you can delete the keys below it in the key file"
    ]


def test_without_the_key_of_a_copy_nothing_is_sealed_and_the_copy_is_named(sealed: Sealed):
    commit = sealed.saved(1, backup=False)
    sealed.has(NEW)
    done = sealed.resealed()
    assert done.needed == {UNKNOWN_KEY: [f"{sealed.store.id}@1 on durable"]}
    assert f"encrypted with key {OLD.id}, and storage.key_file holds key {NEW.id}" in done.failed[0]
    assert not (sealed.root / "durable" / commit.folder / RECORD).exists()


def test_a_key_is_replaced_again_and_again(sealed: Sealed):
    commit = sealed.saved(1)
    for newest, before in ((NEW, OLD), (NEXT, NEW), (OLD, NEXT)):
        sealed.has(newest, before)
        assert not sealed.resealed().needed
        sealed.has(newest)
        assert sealed.opens(commit)


@pytest.mark.parametrize("written", range(4))
def test_a_run_that_is_killed_after_any_copy_is_finished_by_the_next_one(
    sealed: Sealed, written: int, monkeypatch: pytest.MonkeyPatch
):
    commits = [sealed.saved(step) for step in (1, 2)]
    sealed.has(NEW, OLD)
    amend, countdown = FolderTier.amend, iter(range(written))

    def killed(tier: FolderTier, folder: str, name: str, data: bytes) -> None:
        if next(countdown, None) is None:
            raise KeyboardInterrupt
        amend(tier, folder, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(FolderTier, "amend", killed)
        with pytest.raises(KeyboardInterrupt):
            sealed.resealed()
    assert all(sealed.opens(commit, tier) for commit in commits for tier in sealed.tiers)
    assert len(sealed.resealed().sealed) == 4 - written
    sealed.has(NEW)
    assert all(sealed.opens(commit, tier) for commit in commits for tier in sealed.tiers)


@pytest.mark.nightly
def test_a_process_that_is_killed_by_the_kernel_in_the_middle_leaves_every_copy_readable(sealed: Sealed):
    commits = [sealed.saved(step) for step in range(1, 41)]
    sealed.has(NEW, OLD)
    program = (
        "import sys; from pathlib import Path; from slipway.resources.trainings import checkpoints; "
        "from slipway.resources.trainings.store import TrainingStore; "
        "from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier; "
        "root = Path(sys.argv[1]); tiers = {each: FolderTier(root / each) for each in ('durable', 'backup')}; "
        "checkpoints.reseal_all([TrainingStore(Path(sys.argv[2]))], tiers)"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(sealed.root), str(sealed.store.folder)])
    until(lambda: bool(list(sealed.root.rglob(RECORD))) or child.poll() is not None, "the first copy to be sealed")
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert all(sealed.opens(commit, tier) for commit in commits for tier in sealed.tiers)
    assert not sealed.resealed().needed
    sealed.has(NEW)
    assert all(sealed.opens(commit, tier) for commit in commits for tier in sealed.tiers)


def test_a_copy_that_is_made_or_fetched_later_has_the_wrapped_keys(sealed: Sealed):
    commit = sealed.saved(1, backup=False)
    sealed.has(NEW, OLD)
    sealed.resealed()
    copying.replicate(sealed.root / "durable" / commit.folder, sealed.tiers["backup"], commit.folder, commit.manifest)
    copying.fetch(sealed.tiers["backup"], commit.folder, commit.manifest, sealed.root / "fetched" / commit.folder)
    sealed.has(NEW)
    assert sealed.opens(commit, "backup") and sealed.opens(commit, "fetched")


def test_wrapped_keys_of_another_checkpoint_or_that_were_changed_open_nothing(sealed: Sealed):
    first, second = sealed.saved(1), sealed.saved(2)
    sealed.has(NEW, OLD)
    sealed.resealed()
    sealed.has(NEW)
    records = [sealed.root / "durable" / commit.folder / RECORD for commit in (first, second)]
    records[0].write_bytes(records[1].read_bytes())
    with pytest.raises(ValueError, match="the key of model-0 is not the one that was wrapped"):
        sealed.opens(first)
    records[1].unlink()
    with pytest.raises(WrongKey, match=f"encrypted with key {OLD.id}, and storage.key_file holds key {NEW.id}"):
        sealed.opens(second)


def test_checkpoints_of_a_training_that_encrypts_no_more_need_their_key(sealed: Sealed):
    sealed.saved(1, backup=False)
    sealed.store.change_run_policy(RunPolicy(1, 1, 1, 60.0, 3), "test")
    assert sealed.resealed().needed == {OLD.id: [f"{sealed.store.id}@1 on durable"]}
