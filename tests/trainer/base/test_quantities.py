"""A sentence about one thing does not speak of several."""

from slipway.trainer.base.quantities import counted


def test_one_thing_is_named_in_the_singular_and_any_other_number_in_the_plural():
    assert [counted(number, "rank") for number in (0, 1, 2, 3000)] == ["0 ranks", "1 rank", "2 ranks", "3,000 ranks"]


def test_a_noun_has_the_plural_that_it_is_given():
    assert (counted(1, "batch", "batches"), counted(2, "batch", "batches")) == ("1 batch", "2 batches")
