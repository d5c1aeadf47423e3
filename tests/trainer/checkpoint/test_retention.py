"""The rules of retention: the last, every so many steps, the best, and those that are referred to stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.trainer.checkpoint.retention.rules import Reasons, reasons_to_keep, removal_plan, validation_losses
from slipway.trainer.config.operation import RetentionRule
from slipway.trainer.record.fence import Commit, Token

pytestmark = pytest.mark.pure


def commit(step: int, incarnation: int = 1, **metrics: float) -> Commit:
    return Commit(step, Token(incarnation), f"checkpoints/{step}", "0" * 64, metrics)


def surplus(commits: list[Commit], rule: RetentionRule, losses: dict[str, float], referred: Reasons) -> list[Commit]:
    """The commits removed from a tier that holds all of them, the oldest first."""
    decided = removal_plan(
        commits, {candidate.name: {"durable"} for candidate in commits}, {"durable": rule}, losses, referred
    )
    assert sorted(decided.pruned, key=lambda candidate: candidate.name) == sorted(
        (candidate for _, candidate in decided.withdrawn), key=lambda candidate: candidate.name
    )
    return sorted(decided.pruned, key=lambda candidate: candidate.step)


def steps(commits: list[Commit]) -> list[int]:
    return [candidate.step for candidate in commits]


RUN = [commit(step) for step in range(10, 101, 10)]


def test_the_last_checkpoints_stay():
    assert steps(surplus(RUN, RetentionRule(minutes=0, last=3), {}, {})) == [10, 20, 30, 40, 50, 60, 70]


def test_every_so_many_steps_a_checkpoint_stays():
    assert steps(surplus(RUN, RetentionRule(minutes=0, last=1, every=40), {}, {})) == [10, 20, 30, 50, 60, 70, 90]


def test_the_best_checkpoints_by_validation_loss_stay():
    measured = {RUN[1].name: 2.0, RUN[4].name: 1.0, RUN[5].name: 3.0}
    assert steps(surplus(RUN, RetentionRule(minutes=0, last=1, best=2), measured, {})) == [10, 30, 40, 60, 70, 80, 90]


def test_a_checkpoint_that_is_referred_to_stays_and_names_the_reference():
    referred = {RUN[0].name: ["champion of tiny-model"]}
    staying = reasons_to_keep(RUN, RetentionRule(minutes=0, last=1), {}, referred)
    assert staying == {RUN[0].name: ["champion of tiny-model"], RUN[-1].name: ["one of the last 1"]}


def test_a_checkpoint_that_several_rules_keep_has_several_reasons():
    staying = reasons_to_keep(RUN, RetentionRule(minutes=0, last=1, every=50, best=1), {RUN[-1].name: 1.0}, {})
    assert staying[RUN[-1].name] == ["one of the last 1", "every 50 steps", "one of the best 1"]


def test_of_two_checkpoints_of_a_step_that_of_the_newer_incarnation_is_the_newer():
    older, newer = commit(10, 1), commit(10, 2)
    assert surplus([newer, older], RetentionRule(minutes=0, last=1), {}, {}) == [older]


def test_the_loss_of_an_evaluation_replaces_that_of_the_training():
    commits = [commit(10, validation_loss=1.0), commit(20, validation_loss=2.0)]
    measured = validation_losses(commits, {commit(20).name: 0.5})
    assert measured == {commit(10).name: 1.0, commit(20).name: 0.5}


@given(
    st.sets(st.integers(1, 200)), st.integers(1, 8), st.integers(0, 50), st.integers(0, 5), st.sets(st.integers(1, 200))
)
def test_the_newest_and_those_referred_to_stay_under_every_rule(
    run: set[int], last: int, every: int, best: int, referred_steps: set[int]
):
    commits = [commit(step) for step in run]
    referred = {commit(step).name: ["somebody"] for step in referred_steps}
    rule = RetentionRule(minutes=0, last=last, every=every, best=best)
    going = set(steps(surplus(commits, rule, {candidate.name: candidate.step % 7 for candidate in commits}, referred)))
    assert not going & referred_steps
    assert going.isdisjoint(sorted(run)[-last:])
    assert len(run - going) <= last + best + len(run & referred_steps) + sum(
        bool(every) and step % every == 0 for step in run
    )


def test_a_commit_is_pruned_when_its_last_copy_is_removed():
    commits = [commit(10), commit(20), commit(30)]
    holders = {commits[0].name: {"durable", "backup"}, commits[1].name: {"durable"}, commits[2].name: {"durable"}}
    rules = {"durable": RetentionRule(minutes=0, last=1), "backup": RetentionRule(minutes=0, last=1)}
    decided = removal_plan(commits, holders, rules, {}, {})
    assert decided.withdrawn == (("durable", commits[0]), ("durable", commits[1]))
    assert decided.pruned == (commits[1],)


def test_a_tier_without_an_entry_in_the_rules_keeps_its_copies():
    both = commit(10)
    decided = removal_plan([both], {both.name: {"nvme", "durable"}}, {"nvme": None}, {}, {})
    assert decided.withdrawn == (("nvme", both),)
    assert decided.pruned == ()


def test_a_commit_without_a_copy_is_pruned():
    assert removal_plan([commit(10)], {commit(10).name: ()}, {}, {}, {}).pruned == (commit(10),)
