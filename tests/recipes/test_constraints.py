"""Constraints between parameters: a small language that is parsed and never executed."""

import pytest

from recipes.constraints import InvalidConstraint, parse

pytestmark = pytest.mark.pure

VALUES = {
    "batch.micro": 4,
    "batch.sequences": 8,
    "optimiser.kind": "muon",
    "run.precision": "bf16",
    "layout.zero": True,
}


@pytest.mark.parametrize(
    "text",
    [
        "batch.micro <= batch.sequences",
        "batch.sequences % batch.micro == 0",
        "0 < batch.micro * 2 <= batch.sequences and not batch.micro == 3",
        "optimiser.kind == 'muon' or batch.micro > 100",
        "batch.sequences // 3 + 1 - -1 == 4",
        "layout.zero == true",
        "unknown.field > 3",
    ],
)
def test_it_holds(text):
    assert parse(text).holds(VALUES)


@pytest.mark.parametrize("text", ["batch.micro > batch.sequences", "batch.micro / 0 == 1", "optimiser.kind != 'muon'"])
def test_it_does_not_hold(text):
    assert not parse(text).holds(VALUES)


@pytest.mark.parametrize(
    "text",
    [
        *("", "batch.micro", "1 + 1", "batch.micro <", "__import__('os').system('true') == 0", "batch.micro ** 9 > 1"),
        *("[1] == [1]", "(lambda: 1)() == 1", "batch['micro'] > 1", "batch.micro in (1, 2)", "x := 3", "a == b " * 99),
    ],
)
def test_all_else_is_refused(text):
    with pytest.raises(InvalidConstraint):
        parse(text)


def test_it_names_its_fields():
    assert parse("batch.micro <= batch.sequences and 1 < run.steps / 2").names == {
        "batch.micro",
        "batch.sequences",
        "run.steps",
    }


def test_values_that_cannot_be_compared_are_refused_in_words():
    with pytest.raises(InvalidConstraint, match=r"optimiser\.kind > 3: '>' not supported"):
        parse("optimiser.kind > 3").holds(VALUES)
