"""The fence under any interleaving of claims and commits, the late ones included, against a model of it."""

import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from slipway.trainer.record import fence
from slipway.trainer.record.fence import Superseded, Token
from tests.trainer.record.test_fence import a_commit, claim, write_past_the_fence

pytestmark = pytest.mark.pure


class FenceMachine(RuleBasedStateMachine):
    """Any number of processes, each with the token it once claimed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fence-", dir="/dev/shm"))
        self.tokens: list[Token] = []
        self.counts: set[str] = set()
        self.ignored: set[str] = set()
        self.steps = itertools.count(1)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(by_restart=st.booleans())
    def claim_the_next(self, by_restart: bool) -> None:
        newest = self.tokens[-1] if self.tokens else Token(0)
        restarted = by_restart and bool(self.tokens)
        token = Token(newest.incarnation, newest.generation + 1) if restarted else Token(newest.incarnation + 1)
        assert claim(self.folder, token.incarnation, token.generation)
        self.tokens.append(token)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def claim_again(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.tokens))
        assert not claim(self.folder, token.incarnation, token.generation)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), checked=st.booleans())
    def commit(self, data: st.DataObject, checked: bool) -> None:
        """By anybody: who was superseded is refused, or writes all the same because it was checked long ago."""
        token = data.draw(st.sampled_from(self.tokens))
        value = a_commit(next(self.steps), token.incarnation, token.generation)
        if not checked:
            write_past_the_fence(self.folder, value)
        elif token == self.tokens[-1]:
            fence.commit(self.folder, value)
        else:
            try:
                fence.commit(self.folder, value)
                raise AssertionError("a superseded token committed")
            except Superseded:
                return
        (self.counts if token == self.tokens[-1] else self.ignored).add(value.name)

    @precondition(lambda self: self.counts)
    @rule(data=st.data())
    def set_aside(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.counts)))
        (value,) = [commit for commit in fence.commits(self.folder) if commit.name == name]
        fence.set_aside(self.folder, value, "damaged")
        self.counts.remove(name)
        self.ignored.add(name)

    @invariant()
    def what_counts_is_what_was_committed_under_the_claim_of_its_time(self) -> None:
        names = {commit.name for commit in fence.commits(self.folder)}
        assert names == self.counts
        assert not names & self.ignored

    @invariant()
    def nothing_older_than_the_newest_claim_counts_unless_it_was_sealed(self) -> None:
        newest_claim = fence.newest_claim(self.folder)
        for commit in fence.commits(self.folder):
            assert newest_claim is not None
            assert commit.token == newest_claim.token or commit.name in newest_claim.sealed


FenceMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestFence = FenceMachine.TestCase
