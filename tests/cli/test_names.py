"""Names may be cut short as long as one alone begins so."""

import pytest

from slipway.cli.names import resolved, with_step

pytestmark = pytest.mark.pure
KNOWN = ["tiny-decoder-1234", "tiny-encoder-5678", "tiny-decoder"]


@pytest.mark.parametrize(
    ("prefix", "name"),
    [("tiny-e", "tiny-encoder-5678"), ("tiny-decoder-", "tiny-decoder-1234"), ("tiny-decoder", "tiny-decoder")],
)
def test_a_beginning_that_one_name_has_means_that_name_and_a_whole_name_means_itself(prefix: str, name: str):
    assert resolved(prefix, KNOWN, "training") == name


def test_a_beginning_that_several_names_have_lists_them():
    with pytest.raises(ValueError) as refused:
        resolved("tiny", KNOWN, "training")
    assert str(refused.value) == (
        "training tiny: found 3 that begin so, expected one of tiny-decoder, tiny-decoder-1234, tiny-encoder-5678"
    )


def test_a_beginning_that_no_name_has_lists_what_there_is():
    with pytest.raises(ValueError, match=r"^training big: found none that begins so, expected one of tiny-decoder, "):
        resolved("big", KNOWN, "training")


def test_an_empty_name_means_nothing_also_where_there_is_only_one():
    with pytest.raises(ValueError, match=r"^training: found an empty name, expected one of tiny-decoder-1234$"):
        resolved("", ["tiny-decoder-1234"], "training")


def test_a_long_list_is_cut_short():
    with pytest.raises(ValueError, match=r"node-011 and 88 more$"):
        resolved("x", [f"node-{number:03d}" for number in range(100)], "node")


@pytest.mark.parametrize(
    ("text", "checkpoint"), [("tiny@80", ("tiny", 80)), ("tiny", ("tiny", None)), ("a.3@0", ("a.3", 0))]
)
def test_a_checkpoint_is_a_training_and_a_step(text: str, checkpoint: tuple[str, int | None]):
    assert with_step(text) == checkpoint
