"""The command chaos: what it refuses, before anything is done."""

import pytest

from tests.cli.conftest import Call


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fault", "pod-deleted"], "--fault: found 'pod-deleted', which cannot be done on an embedded instance; exp"),
        (["--fault", "gremlins"], "--fault: found 'gremlins', which is unknown; expected one of rank-killed, "),
        (["--minutes", "0"], "minutes: found 0, expected a number above 0"),
        (["--minutes", "inf"], "minutes: found inf, expected a number above 0"),
        (["--every", "nan"], "every: found nan, expected a number above 0"),
        (["--every", "0.001"], "every: found 0.001, which gives 900,000 faults, expected 10,000 at most"),
        (["--apply"], "found no training that makes steps now, expected one to do harm to"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(slipway: Call, arguments: list[str], message: str) -> None:
    result = slipway("chaos", *arguments)
    assert result.code == 1 and result.err.startswith(f"slipway: {message}") and result.out == ""
