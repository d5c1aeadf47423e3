"""Constraints between parameters: a small language that is parsed and never executed."""

import pytest

from slipway.recipes.constraints import InvalidConstraint, parse

pytestmark = pytest.mark.pure

VALUES = {
    "batch.micro": 4,
    "batch.sequences": 8,
    "optimizer.kind": "muon",
    "run.precision": "bf16",
    "layout.zero": True,
}


@pytest.mark.parametrize(
    "text",
    [
        "batch.micro <= batch.sequences",
        "batch.sequences % batch.micro == 0",
        "0 < batch.micro * 2 <= batch.sequences and not batch.micro == 3",
        "optimizer.kind == 'muon' or batch.micro > 100",
        "batch.sequences // 3 + 1 - -1 == 4",
        "layout.zero == true",
        "unknown.field > 3",
    ],
)
def test_it_holds(text):
    assert parse(text).holds(VALUES)


@pytest.mark.parametrize("text", ["batch.micro > batch.sequences", "batch.micro / 0 == 1", "optimizer.kind != 'muon'"])
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizer.kind > 3", '"muon" beside 3'),
        ("optimizer.kind * 99999999999 == 'a'", '"muon" beside + - * / // %'),
        ("optimizer.kind % 3 == 'a'", '"muon" beside + - * / // %'),
        ("-optimizer.kind == 3", '"muon" beside + - * / // %'),
    ],
)
def test_what_it_cannot_be_worked_out_with_is_reported_in_words_and_does_not_hold(text: str, message: str):
    with pytest.raises(InvalidConstraint) as caught:
        parse(text).check(VALUES)
    assert str(caught.value) == message
    assert not parse(text).holds(VALUES)


@pytest.mark.parametrize("text", ["batch.micro / 0 == 1", f"1{'0' * 400} / 0.5 > batch.micro"])
def test_a_number_that_there_is_not_makes_it_false_and_is_no_fault_of_the_text(text: str):
    parse(text).check(VALUES)
    assert not parse(text).holds(VALUES)


def test_a_field_that_is_null_has_no_value():
    assert parse("batch.micro < 3").holds({"batch.micro": None})
