"""A team's own checks by SQL: a table of an older version has nulls where it has no column."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resources import warehouse

pytestmark = pytest.mark.pure

COLUMNS = pa.schema({"name": pa.string(), "url": pa.string(), "bytes": pa.int64()})


def asked(query: str, documents: Path | None, parent: Path | None) -> tuple[int, list[dict[str, str]]]:
    return warehouse.broken_by(query, {"documents": documents, "parent": parent}, COLUMNS, 5)


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    new, old = tmp_path / "new.parquet", tmp_path / "old.parquet"
    pq.write_table(pa.table({"name": ["a", "b"], "url": ["u", None], "bytes": [1, 2]}), new)
    pq.write_table(pa.table({"bytes": [1], "name": ["a"]}), old)
    return new, old


def test_a_column_that_the_parent_does_not_have_is_null_there(tables: tuple[Path, Path]):
    query = "SELECT parent.name, parent.url FROM documents JOIN parent USING (name) WHERE parent.url IS NULL"
    assert asked(query, *tables) == (1, [{"name": "a", "url": "None"}])


def test_without_a_parent_there_are_no_rows_of_it(tables: tuple[Path, Path]):
    assert asked("SELECT * FROM parent", tables[0], None) == (0, [])
    assert asked("SELECT name FROM documents ANTI JOIN parent USING (name)", tables[0], None)[0] == 2


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("COPY (SELECT 'x' AS name) TO '{new}' (FORMAT parquet)", "COPY"),
        ("DROP VIEW documents", "DROP"),
        ("SELECT 1; DROP VIEW documents", "SELECT, then DROP"),
        ("CREATE TABLE more AS FROM documents", "CREATE"),
        ("SET threads = 64", "SET"),
        ("-- nothing", "no statement"),
    ],
)
def test_only_a_select_is_asked_and_the_tables_stay_as_they_are(tables: tuple[Path, Path], statement: str, found: str):
    before = tables[0].read_bytes()
    with pytest.raises(ValueError, match=f"found {found}, expected one SELECT: nothing is changed by a query"):
        asked(statement.format(new=tables[0]), *tables)
    assert tables[0].read_bytes() == before


def test_a_query_over_rows_takes_a_select_alone_too():
    columns, rows = {"trainings": {"id": "VARCHAR"}}, {"trainings": [("a",)]}
    assert warehouse.query("WITH x AS (FROM trainings) FROM x", columns, rows) == (["id"], [("a",)])
    for statement in ("DROP TABLE trainings", "DELETE FROM trainings RETURNING id", "PRAGMA version"):
        with pytest.raises(ValueError, match="expected one SELECT"):
            warehouse.query(statement, columns, rows)
    with pytest.raises(ValueError, match=r"query 'selec 1': Parser Error: syntax error"):
        warehouse.query("selec 1", columns, rows)
