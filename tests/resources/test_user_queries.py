"""SQL that a person wrote: what it may read, and how much memory, disk and time it may take."""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipway.resources import user_queries, warehouse
from tests.conftest import until

pytestmark = pytest.mark.pure

COLUMNS = pa.schema({"name": pa.string(), "url": pa.string(), "bytes": pa.int64()})


NOTHING: dict[str, dict[str, str]] = {}
ENDLESS = "SELECT count(*) FROM range(1000000000000) a, range(1000000) b"
"""A join that asks nobody, while it runs, whether it should end."""
LONG_TASK = "SELECT count(*) FROM range(1000000000000)"
"""One of duckdb's own threads may take it while the calling thread only waits."""


def answer_to(query: str, documents: Path | None, parent: Path | None) -> tuple[int, list[dict[str, str]]]:
    answer = user_queries.over_files(query, {"documents": documents, "parent": parent}, COLUMNS, 5)
    return answer.row_count, [dict(zip(answer.columns, map(str, row), strict=True)) for row in answer.rows]


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    new, old = tmp_path / "new.parquet", tmp_path / "old.parquet"
    pq.write_table(pa.table({"name": ["a", "b"], "url": ["u", None], "bytes": [1, 2]}), new)
    pq.write_table(pa.table({"bytes": [1], "name": ["a"]}), old)
    return new, old


def test_a_column_that_the_parent_does_not_have_is_null_there(tables: tuple[Path, Path]):
    query = "SELECT parent.name, parent.url FROM documents JOIN parent USING (name) WHERE parent.url IS NULL"
    assert answer_to(query, *tables) == (1, [{"name": "a", "url": "None"}])


def test_without_a_parent_there_are_no_rows_of_it(tables: tuple[Path, Path]):
    assert answer_to("SELECT * FROM parent", tables[0], None) == (0, [])
    assert answer_to("SELECT name FROM documents ANTI JOIN parent USING (name)", tables[0], None)[0] == 2


@pytest.mark.parametrize(
    ("statement", "statements"),
    [
        ("COPY (SELECT 'x' AS name) TO '{new}' (FORMAT parquet)", "COPY"),
        ("DROP VIEW documents", "DROP"),
        ("SELECT 1; DROP VIEW documents", "SELECT, then DROP"),
        ("CREATE TABLE more AS FROM documents", "CREATE"),
        ("SET threads = 64", "SET"),
        ("-- nothing", "no statement"),
    ],
)
def test_only_a_select_is_asked_and_the_tables_stay_as_they_are(
    tables: tuple[Path, Path], statement: str, statements: str
):
    before = tables[0].read_bytes()
    with pytest.raises(ValueError, match=f"found {statements}, expected one SELECT: a query cannot change anything"):
        answer_to(statement.format(new=tables[0]), *tables)
    assert tables[0].read_bytes() == before


def test_a_query_over_rows_takes_a_select_alone_too():
    columns, rows = {"trainings": {"id": "VARCHAR"}}, {"trainings": [("a",)]}
    assert user_queries.over_rows("WITH x AS (FROM trainings) FROM x", columns, rows, 5) == (["id"], [("a",)], 1)
    for statement in ("DROP TABLE trainings", "DELETE FROM trainings RETURNING id", "PRAGMA version"):
        with pytest.raises(ValueError, match="expected one SELECT"):
            user_queries.over_rows(statement, columns, rows, 5)
    with pytest.raises(ValueError, match=r"query 'selec 1': Parser Error: syntax error"):
        user_queries.over_rows("selec 1", columns, rows, 5)


def test_of_an_endless_answer_the_first_rows_are_given():
    answer = user_queries.over_rows("SELECT * FROM range(1000000000000)", NOTHING, {}, 3)
    assert answer == (["range"], [(0,), (1,), (2,)], 4)


def test_of_a_check_that_finds_no_end_of_rows_a_million_are_counted(tables: tuple[Path, Path]):
    row_count, first = answer_to("SELECT * FROM range(1000000000000)", *tables)
    assert (row_count, len(first)) == (user_queries.COUNTED, 5)


@pytest.mark.parametrize("over", ["rows", "files"])
def test_an_answer_that_takes_too_much_memory_is_refused_with_the_limit(
    over: str, tables: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(user_queries, "MEMORY", "100MB")
    query = "SELECT list(range) FROM range(200000000)"
    with pytest.raises(ValueError, match=r"query 'SELECT list.* it may use 100MB of memory and 8GB of disk"):
        user_queries.over_rows(query, NOTHING, {}, 3) if over == "rows" else answer_to(query, *tables)


def test_what_a_query_spills_lies_among_the_temporary_files_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    query = "SELECT current_setting('temp_directory')"
    [(folder,)] = user_queries.over_rows(query, NOTHING, {}, 3).rows
    assert Path(folder).parent == temporary and list(tmp_path.rglob("*")) == [temporary]


@contextlib.contextmanager
def signalled(number: signal.Signals) -> Iterator[None]:
    """Send this process the signal when a query inside has computed for a while."""
    main = threading.get_ident()
    begun = time.process_time()

    def send() -> None:
        until(lambda: time.process_time() > begun + 0.5, "the query to compute")
        signal.pthread_kill(main, number)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        sender.join()


@contextlib.contextmanager
def handler(number: signal.Signals, handle: Callable[..., Any]) -> Iterator[None]:
    before = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("query", [ENDLESS, LONG_TASK], ids=["join", "one long task"])
def test_ctrl_c_ends_a_query_that_looks_for_no_signal(query: str):
    with (
        handler(signal.SIGINT, signal.default_int_handler),
        signalled(signal.SIGINT),
        pytest.raises(KeyboardInterrupt),
        warehouse.connect() as connection,
    ):
        connection.execute(query).fetchall()


def test_a_query_is_ended_by_a_signal_whose_handler_raises_nothing():
    """Dagster only notes that a run is to end, and looks at it later."""
    noted: list[int] = []
    with (
        handler(signal.SIGTERM, lambda number, _: noted.append(number)),
        signalled(signal.SIGTERM),
        pytest.raises(KeyboardInterrupt),
        warehouse.connect() as connection,
    ):
        connection.execute(ENDLESS).fetchall()
    assert noted == [signal.SIGTERM]


def test_a_query_of_a_person_is_ended_by_a_signal_whose_handler_raises_an_error_of_its_own():
    """duckdb loses that error where it sees the signal itself."""

    class RunCancelled(Exception):
        pass

    def cancel(*_: object) -> None:
        raise RunCancelled

    with (
        handler(signal.SIGTERM, cancel),
        signalled(signal.SIGTERM),
        pytest.raises((RunCancelled, KeyboardInterrupt)),
    ):
        answer_to(ENDLESS, None, None)


def test_who_listened_for_signals_before_a_query_hears_of_them_still():
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno())
    try:
        with handler(signal.SIGUSR1, lambda *_: None):
            with warehouse.connect() as connection:
                connection.execute("SELECT 1").fetchall()
                signal.raise_signal(signal.SIGUSR1)
                reader.settimeout(30)
                assert reader.recv(1) == bytes([signal.SIGUSR1])
            signal.raise_signal(signal.SIGUSR1)
            assert reader.recv(1) == bytes([signal.SIGUSR1])
    finally:
        signal.set_wakeup_fd(before)
        reader.close()
        writer.close()
