"""Sources: which files make a corpus, and what identifies it."""

import re
import shutil
import sysconfig
from pathlib import Path

import pytest

from assets.datasets.sources import Source, list_source
from tests.data.corpora import make_corpus, recipe_for, write_file


def names(source: Source) -> list[str]:
    return [file.name for file in source.files]


def test_a_directory_gives_its_files_by_relative_name(tmp_path):
    write_file(tmp_path / "b" / "c" / "d.txt", "two")
    write_file(tmp_path / "a.txt", "one")
    source = list_source(recipe_for(tmp_path))
    assert names(source) == ["a.txt", "b/c/d.txt"]
    assert (source.kind, source.bytes, source.left_out) == ("directory", 6, {})


def test_the_digest_does_not_depend_on_where_the_files_lie(tmp_path):
    first = make_corpus(tmp_path / "first")
    shutil.copytree(first, tmp_path / "second")
    assert list_source(recipe_for(first)).provenance() == list_source(recipe_for(tmp_path / "second")).provenance()


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: write_file(folder / "package0" / "module0.py", "other"),
        lambda folder: (folder / "package0" / "module0.py").rename(folder / "renamed.py"),
        lambda folder: (folder / "package0" / "module0.py").unlink(),
        lambda folder: write_file(folder / "new.py", "new"),
    ],
)
def test_the_digest_changes_with_names_and_contents(tmp_path, change):
    recipe = recipe_for(make_corpus(tmp_path))
    before = list_source(recipe).digest
    change(tmp_path)
    assert list_source(recipe).digest != before


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (("*.py",), None, ["a.py", "x/b.py", "x/y/c.py"]),
        (("x/*",), None, ["x/b.py", "x/notes.md", "x/y/c.py"]),
        (("?.py", "*.md"), None, ["a.py", "x/notes.md"]),
        (("*.py",), ("x/y/*",), ["a.py", "x/b.py"]),
        (None, ("*.py",), ["x/notes.md"]),
    ],
)
def test_the_recipe_chooses_files(tmp_path, include, exclude, expected):
    for name in ("a.py", "x/b.py", "x/y/c.py", "x/notes.md"):
        write_file(tmp_path / name, name)
    assert names(list_source(recipe_for(tmp_path, include, exclude))) == expected


def test_files_that_cannot_be_documents_are_left_out_and_counted(tmp_path):
    write_file(tmp_path / "good.txt", "text")
    write_file(tmp_path / "empty.txt", "")
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    source = list_source(recipe_for(tmp_path))
    assert names(source) == ["good.txt"]
    assert source.provenance()["left_out"] == {"empty": 1, "not UTF-8": 1}


def test_a_missing_directory_is_one_clear_error(tmp_path):
    missing = tmp_path / "missing"
    expected = f"dataset small-corpus: source.path: found nothing at {missing}, expected a directory"
    with pytest.raises(ValueError, match=re.escape(expected)):
        list_source(recipe_for(missing))


def test_a_file_in_the_place_of_the_directory_is_said(tmp_path):
    write_file(tmp_path / "file", "text")
    with pytest.raises(ValueError, match=r"found a file at .*, expected a directory"):
        list_source(recipe_for(tmp_path / "file"))


def test_an_empty_corpus_names_the_folder_the_globs_and_what_was_left_out(tmp_path):
    write_file(tmp_path / "a.md", "")
    with pytest.raises(ValueError, match=r"found no document in .*include \['\*\.md'\].*1 left out \(empty\)") as error:
        list_source(recipe_for(tmp_path, ("*.md",)))
    assert str(tmp_path) in str(error.value)


def test_the_standard_library_is_found_without_its_tests():
    source = list_source(recipe_for(None))
    found = set(names(source))
    assert {"os.py", "json/decoder.py", "asyncio/events.py"} <= found
    assert not [name for name in found if {"test", "tests", "site-packages", "idlelib"} & set(name.split("/"))]
    assert len(found) > 400
    assert source.bytes > 5_000_000


def test_a_python_without_library_sources_is_one_clear_error(tmp_path, monkeypatch):
    compiled = tmp_path / "python3.11"
    write_file(compiled / "__pycache__" / "os.cpython-311.pyc", "compiled")
    write_file(compiled / "site-packages" / "installed.py", "not the library")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(compiled))
    with pytest.raises(
        ValueError, match="dataset small-corpus: found no sources of Python's standard library"
    ) as error:
        list_source(recipe_for(None))
    assert str(compiled) in str(error.value)
    assert "expected about 600 .py files" in str(error.value)


def test_a_zipped_standard_library_is_the_same_error(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "python311.zip" / "lib"))
    with pytest.raises(ValueError, match="found no sources of Python's standard library"):
        list_source(recipe_for(None))
