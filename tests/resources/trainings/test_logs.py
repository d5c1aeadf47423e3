"""Lines of all ranks in one place: each has its time and rank as far as the line, the ledger or the node says."""

import pytest

from slipway.resources.trainings.logs import LogFollower, LogSource, after, lines, merged

pytestmark = pytest.mark.pure


def source(text: str, node: str = "node-0", incarnation: int = 1, **fields: object) -> LogSource:
    values = {"begun": 100.0, "steps": {1: 110.0, 2: 120.0}, **fields}
    return LogSource(incarnation, node, text, **values)  # type: ignore[arg-type]


def test_a_line_has_the_time_of_the_step_it_names_and_others_that_of_the_line_before():
    read_lines = list(lines(source("building\nstep 1/10 loss 3\nsaved\nstep 2/10 loss 2\n")))
    assert [line.at for line in read_lines] == [100.0, 110.0, 110.0, 120.0]


def test_a_line_that_begins_with_a_time_has_that_time_and_none_goes_back():
    read_lines = list(lines(source("[1970-01-01T00:02:30.500Z] hello\nstep 1/10 loss 3\n1970-13-45 00:00:00 nonsense")))
    assert [line.at for line in read_lines] == [150.5, 150.5, 150.5]


def test_a_rank_is_the_one_that_the_line_names_or_the_only_one_of_its_node():
    text = "[default3]:warning\n[rank1]:[W] late\nnode-0: rank 2 was killed\nplain"
    assert [line.rank for line in lines(source(text))] == [3, 1, 2, None]
    assert [line.rank for line in lines(source("plain", ranks=frozenset({5})))] == [5]


def test_lines_of_all_nodes_and_incarnations_come_in_the_order_of_time():
    read_lines = merged(
        [
            source("step 2/10 b", incarnation=1),
            source("step 1/10 a", "node-1", incarnation=1),
            source("again", incarnation=2, begun=200.0),
        ]
    )
    assert [(line.incarnation, line.node, line.at) for line in read_lines] == [
        (1, "node-1", 110.0),
        (1, "node-0", 120.0),
        (2, "node-0", 200.0),
    ]


def test_only_what_was_asked_for_is_shown():
    one = source("step 1/10 loss 3\nstep 2/10 loss 2\n[rank1]: hello")
    assert [line.text for line in merged([one], since=115.0)] == ["step 2/10 loss 2", "[rank1]: hello"]
    assert [line.text for line in merged([one], rank=1)] == ["[rank1]: hello"]
    assert [line.text for line in merged([one], grep="loss 3")] == ["step 1/10 loss 3"]


def test_who_follows_sees_each_whole_line_once_also_when_the_end_of_the_log_moves_on():
    follower = LogFollower()
    texts = []
    for text in ("step 1/10\nhel", "step 1/10\nhello\nsame\n", "hello\nsame\nsame\n", "hello\nsame\nsame\n"):
        texts += [line.text for line in merged(follower.new([source(text)]))]
    assert texts[:3] == ["step 1/10", "hello", "same"]
    assert after("a\nb\nc\n", "x\na\nb\n") == "a\nb\nc\n"
    assert after("a\nb\nc\n", "a\nb\n") == "c\n"


def test_each_line_says_the_newest_step_that_was_done_then():
    read_lines = lines(source("hello\nstep 1/10 loss 3\nsaved\nstep 2/10 loss 2"))
    assert [line.step for line in read_lines] == [None, 1, 1, 2]
