"""Errors of a database of the instance: a sentence with what to do where a person can mend it, a stack elsewhere."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.resources.errors import is_for_people, sentence

pytestmark = pytest.mark.pure


def _error(path: Path, statement: str) -> sqlite3.Error:
    connection = sqlite3.connect(path, timeout=0)
    try:
        with pytest.raises(sqlite3.Error) as caught:
            connection.execute(statement)
    finally:
        connection.close()
    return caught.value


def _as_sqlalchemy_does(error: sqlite3.Error) -> Exception:
    passed_on = RuntimeError(f"(sqlite3.{type(error).__name__}) {error} [SQL: SELECT a page of it]")
    passed_on.orig = error  # type: ignore[attr-defined]
    return passed_on


@pytest.mark.parametrize("wrap", [lambda error: error, _as_sqlalchemy_does], ids=["sqlite", "SQLAlchemy"])
def test_a_damaged_database_is_said_in_a_sentence_with_what_to_do(
    tmp_path: Path, wrap: Callable[[sqlite3.Error], Exception]
):
    (tmp_path / "runs.db").write_text("garbage\n" * 100)
    error = wrap(_error(tmp_path / "runs.db", "SELECT * FROM sqlite_master"))
    assert is_for_people(error)
    assert sentence(error) == (
        "a database of the instance, dagster/ or mlflow.db: file is not a database; "
        "it is damaged: slipway restore puts the last backup back"
    )


def test_a_database_that_cannot_be_opened_is_said_with_what_to_do(tmp_path: Path):
    tmp_path.joinpath("runs.db").mkdir()
    with pytest.raises(sqlite3.Error) as caught:
        sqlite3.connect(tmp_path / "runs.db")
    assert is_for_people(caught.value) and sentence(caught.value).endswith("look at the permissions of the home")


def test_a_wrong_statement_is_a_defect_of_the_code_and_keeps_its_stack(tmp_path: Path):
    assert not is_for_people(_error(tmp_path / "runs.db", "SELECT * FROM nowhere"))
    assert not is_for_people(_as_sqlalchemy_does(_error(tmp_path / "runs.db", "SELEC")))
