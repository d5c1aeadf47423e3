"""Interleavings of retention with what finds damage, supersedes, copies and branches: no acknowledged commit is lost.

Several processes work on the records of one training, one file-system operation at a time, in an order drawn from a
seed, and are killed anywhere. Retention keeps the two newest commits on the durable tier and the newest on the backup.
"""

import functools
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from slipway.trainer.base import codec
from slipway.trainer.checkpoint.retention import holds, rules
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.checkpoint.tiers.replicas import FORMAT, WithdrawalRecord
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE
from slipway.trainer.config.operation import RetentionRule
from slipway.trainer.record import fence, files
from slipway.trainer.record.fence import Commit, Superseded, Token
from tests.schedule import Schedule

pytestmark = pytest.mark.pure

WATCHED_FOLDERS = {
    files.CLAIMS, files.COMMITS, files.SET_ASIDE, files.PRUNED, files.WITHDRAWN, files.REPLICAS, files.HOLDS,
    files.LEAVING,
}  # fmt: skip
RULES: dict[str, RetentionRule | None] = {
    DURABLE: RetentionRule(minutes=0, last=2, every=0, best=0),
    BACKUP: RetentionRule(minutes=0, last=1, every=0, best=0),
}
STEPS = (10, 20, 30, 40)


class World:
    """One training with four commits, the two oldest of which also on the backup."""

    def __init__(self, seed: int, root: Path, kills: float) -> None:
        self.schedule = Schedule(seed, WATCHED_FOLDERS | {f"{step:09d}.000001.0000" for step in STEPS}, kills)
        self.chance = self.schedule.chance
        self.store, self.newest = root / "tiny", 1
        (self.store / files.HOLDS).mkdir(parents=True)
        assert self._claim(1)
        self.commits = [Commit(step, Token(1), f"checkpoints/tiny/{step}", "0" * 64) for step in STEPS]
        for commit in self.commits:
            fence.commit(self.store, commit)
        for commit in self.commits[:2]:
            replicas.record(self.store, commit, BACKUP, 1)
        self.accepted: list[str] = []
        self.refused: list[str] = []
        self.superseded = 0

    def _claim(self, incarnation: int) -> bool:
        return fence.claim(self.store, Token(incarnation), nodes=("node",), cause="a test", by="a test")

    def supersede(self) -> None:
        self.newest += 1
        self._claim(self.newest)

    def retain(self) -> None:
        """As the control plane does each hour."""
        commits = fence.commits(self.store)
        referred = {commit.name: holds.reasons(self.store, commit.name, time.time()) for commit in commits}
        plan = rules.removal_plan(commits, replicas.holders(self.store, commits), RULES, {}, referred)
        rules.record_removals(self.store, plan)

    def find_damage(self, commit: Commit, tiers: tuple[str, ...], token: Token | None) -> None:
        """As a start does under its token, and an evaluation without one."""
        try:
            replicas.set_aside(self.store, commit, dict.fromkeys(tiers, "found a flipped bit"), token)
        except Superseded:
            self.superseded += 1

    def branch(self, commit: Commit, number: int) -> None:
        holds.hold_for(self.store, commit.name, self.store.parent / f"child-{number}")
        try:
            holds.require_kept(self.store, [commit.name])
        except holds.NotKept:
            self.refused.append(commit.name)
        else:
            self.accepted.append(commit.name)

    def begin(self) -> None:
        spawn, choose = self.schedule.spawn, self.chance.choice
        for number in range(2):
            spawn(f"retention {number}", self.retain)
        for number in range(4):
            spawn(f"branch {number}", functools.partial(self.branch, choose(self.commits[:2]), number))
        for number in range(2):
            tiers, token = choose(((DURABLE,), (BACKUP,), (DURABLE, BACKUP))), choose((None, Token(1)))
            spawn(f"damage {number}", functools.partial(self.find_damage, choose(self.commits), tiers, token))
        spawn("claim", self.supersede)
        spawn("copy", lambda: replicas.record(self.store, self.commits[2], BACKUP, 1))

    def withdrawals(self, commit: str) -> list[WithdrawalRecord]:
        folder = self.store / files.WITHDRAWN / commit
        return [codec.read(path, WithdrawalRecord, FORMAT) for path in sorted(folder.glob("*.json"))]


def check(world: World) -> None:
    pruned = set(fence.pruned(world.store))
    for commit in (candidate for candidate in world.commits if candidate.name in pruned):
        own = {withdrawal.tier for withdrawal in world.withdrawals(commit.name) if not withdrawal.damaged}
        assert replicas.ever_held(world.store, commit) <= own, f"{commit.name}: pruned for what was called damaged"
    assert world.commits[-1].name not in pruned, "a rule keeps it"
    valid = {commit.name: commit for commit in fence.commits(world.store)}
    for name in world.accepted:
        found_damaged = any(withdrawal.damaged for withdrawal in world.withdrawals(name))
        taken = [withdrawal for withdrawal in world.withdrawals(name) if not withdrawal.damaged]
        assert found_damaged or (name in valid and replicas.holders(world.store, [valid[name]])[name]), (name, taken)
        assert name not in pruned


def interleave(seed: int, kills: float) -> World:
    root = Path(tempfile.mkdtemp(prefix="retention-", dir="/dev/shm"))
    try:
        world = World(seed, root, kills)
        world.begin()
        world.schedule.run()
        world.schedule.kills = 0.0
        for again in range(2):  # the next hours, in which nothing else happens
            world.schedule.spawn(f"hour {again}", world.retain)
            world.schedule.run()
        check(world)
        return world
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("kills", [0.0, 0.02])
def test_retention_prunes_only_what_it_withdrew_itself_and_nothing_that_a_branch_was_given(kills: float) -> None:
    worlds = [interleave(seed, kills) for seed in range(30)]
    assert sum(len(world.accepted) for world in worlds) > 10
    assert sum(len(world.refused) for world in worlds) > 2
    assert sum(world.superseded for world in worlds) > 0


@pytest.mark.nightly
@pytest.mark.parametrize("kills", [0.0, 0.005, 0.02, 0.1])
def test_no_acknowledged_commit_is_pruned_in_four_thousand_interleavings(kills: float) -> None:
    for seed in range(1_000, 2_000):
        interleave(seed, kills)
