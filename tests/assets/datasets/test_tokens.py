"""Tokens: an attempt to encode documents may end at any moment, and it may not be the only one."""

import dataclasses
import itertools
import os
import shutil
import signal
from multiprocessing import get_context
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from slipway.assets.datasets.building.build import begin_build
from slipway.assets.datasets.building.build_log import quiet
from slipway.assets.datasets.documents import extraction, extracts
from slipway.assets.datasets.reading import sources
from slipway.assets.datasets.texts import segments, tokenizer, tokens
from slipway.assets.datasets.texts.documents import TEXT_DOCUMENTS
from tests.assets.datasets.corpora import recipe_for, write_file

DOCUMENTS = 5


@pytest.fixture
def task(tmp_path, durable) -> tokens._Encoding:
    """The encoding of all texts of a segment."""
    for number in range(DOCUMENTS):
        write_file(tmp_path / "corpus" / f"{number}.txt", f"the text of number {number}\n" * (number + 1))
    recipe = recipe_for(tmp_path / "corpus")
    with begin_build(recipe, TEXT_DOCUMENTS, durable, quiet) as build:
        extracted = extraction.extract(build, sources.list_source(recipe))
    [segment] = extracts.segments(extracted.index, durable)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    rows = pq.read_table(segment, columns=["file", "number", "blake3"])
    missing = tmp_path / "missing"
    pq.write_table(rows.rename_columns(["name", "number", "blake3"]), missing)
    tokenizer_record = tokenizer.write(durable, tokenizer.train(["the text of number"], 300))
    return tokens._Encoding(segment, (missing,), 0, tokenizer_record.sha256, durable, scratch)


def files_of(task: tokens._Encoding) -> dict[str, bytes]:
    """What an attempt leaves under the names by which others find it."""
    return {path.name: path.read_bytes() for path in (task.spool, task.located) if path.exists()}


def undisturbed(task: tokens._Encoding) -> dict[str, bytes]:
    """The files of a single attempt, made elsewhere."""
    other_task = dataclasses.replace(task, scratch=task.scratch.with_name("elsewhere"))
    shutil.copytree(task.scratch, other_task.scratch)
    tokens._encode(other_task)
    return files_of(other_task)


def test_an_attempt_that_fails_in_the_middle_leaves_no_finished_file(task, monkeypatch):
    expected = undisturbed(task)
    original = segments.texts

    def broken(segment, selected):
        yield from itertools.islice(original(segment, selected), 3)
        raise OSError("as a disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(segments, "texts", broken)
        with pytest.raises(OSError, match="as a disk fails"):
            tokens._encode(task)
    assert files_of(task) == {}
    tokens._encode(task)
    assert files_of(task) == expected


def test_an_attempt_that_ends_late_changes_no_token_that_is_read_already(task):
    located = pq.read_table(tokens._encode(task)).to_pylist()
    first, mapped = files_of(task), tokens.Spool(task.spool, None).tokens("uint16")
    before = mapped.copy()
    tokens._encode(task)
    assert files_of(task) == first
    assert (mapped == before).all()
    assert sum(row["count"] for row in located) == len(mapped)
    assert len(located) == DOCUMENTS


def test_a_late_attempt_of_a_build_that_is_over_makes_no_folder_again(task):
    shutil.rmtree(task.scratch)
    with pytest.raises(FileNotFoundError):
        tokens._encode(task)
    assert not task.scratch.exists()


def _die_in_the_middle(task: tokens._Encoding) -> None:
    original = segments.texts

    def dying(segment: Path, selected):
        yield from itertools.islice(original(segment, selected), 3)
        os.kill(os.getpid(), signal.SIGKILL)

    segments.texts = dying
    tokens._encode(task)


@pytest.mark.nightly
def test_an_attempt_that_is_killed_in_the_middle_is_made_again(task):
    expected = undisturbed(task)
    process = get_context("spawn").Process(target=_die_in_the_middle, args=(task,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert files_of(task) == {}
    tokens._encode(task)
    assert files_of(task) == expected
