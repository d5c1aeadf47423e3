"""Verdicts: which ends of ranks end the job, and which are answered inside it, by the answers of the recipe."""

from pathlib import Path
from signal import SIGKILL

import pytest

from slipway.trainer.elastic import verdict
from slipway.trainer.record import causes
from slipway.trainer.record.fence import Token

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("kind", "policies", "ends"),
    [
        (causes.KILLED, {}, False),
        (causes.KILLED, {causes.KILLED: causes.STOP}, True),
        (causes.PROGRAM, {causes.PROGRAM: causes.STOP}, True),
        (causes.CORRUPTION, {}, True),  # its usual answer is other nodes, which the control plane chooses
        (causes.CORRUPTION, {causes.CORRUPTION: causes.RETRY}, False),
        (causes.SPIKE, {causes.SPIKE: causes.STOP}, True),
        (causes.CONFIGURATION, {}, True),
        (causes.NETWORK, {}, False),
        (causes.UNKNOWN, {}, False),
    ],
)
def test_the_job_ends_where_the_answer_is_other_nodes_or_no_start_at_all(
    kind: str, policies: dict[str, str], ends: bool
) -> None:
    assert verdict.ends_job(kind, policies) is ends


def test_a_killed_rank_ends_the_job_of_a_recipe_that_says_so(tmp_path: Path) -> None:
    codes = {0: None, 1: -int(SIGKILL)}
    faults = [verdict.fault(codes, tmp_path, Token(1), "a", chosen) for chosen in ({}, {causes.KILLED: causes.STOP})]
    assert [rank_fault and (rank_fault.rank, rank_fault.kind, rank_fault.final) for rank_fault in faults] == [
        (1, causes.KILLED, False),
        (1, causes.KILLED, True),
    ]
