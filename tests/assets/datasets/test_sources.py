"""Sources: which files make a corpus, how changes are found, and the messages when there are none."""

import os
import pickle
import re
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from slipway.assets.datasets.reading import sources
from slipway.assets.datasets.reading.listed_file import UnreadFile
from slipway.assets.datasets.reading.sources import SourceListing, list_source
from slipway.recipes.dataset import DatasetRecipe

pytestmark = pytest.mark.pure


def recipe(source: dict[str, Any]) -> DatasetRecipe:
    return DatasetRecipe.model_validate(
        {"name": "small-corpus", "description": "d", "owner": "team:data", "source": source}
    )


def folder(path: Path, **selection: Any) -> DatasetRecipe:
    return recipe({"kind": "directory", "path": str(path), **selection})


def write(path: Path, content: str = "text", age: float = 60) -> Path:
    """A file that was written a while ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - age))
    return path


def names(listing: SourceListing) -> list[str]:
    return [file.name for file in listing.files]


def test_a_directory_gives_its_files_by_relative_name_and_size(tmp_path):
    write(tmp_path / "b" / "c" / "d.txt", "three")
    write(tmp_path / "a.txt", "one")
    listing = list_source(folder(tmp_path))
    assert [(file.name, file.bytes) for file in listing.files] == [("a.txt", 3), ("b/c/d.txt", 5)]
    assert (listing.kind, listing.left_out) == ("directory", {})


def test_files_are_in_the_order_of_their_names_bytes(tmp_path):
    for name in ("é", "z", "Z", "a/b", "a-b", "\U0001f600", "\uffff"):
        write(tmp_path / name)
    assert names(list_source(folder(tmp_path))) == ["Z", "a-b", "a/b", "z", "é", "\uffff", "\U0001f600"]


def test_listing_reads_no_content(tmp_path):
    write(tmp_path / "unreadable.txt").chmod(0)
    before = (tmp_path / "unreadable.txt").stat().st_atime_ns
    assert names(list_source(folder(tmp_path))) == ["unreadable.txt"]
    assert (tmp_path / "unreadable.txt").stat().st_atime_ns == before


@pytest.mark.parametrize(
    "change",
    [
        lambda file: write(file, "other, longer"),
        lambda file: write(file, "same", age=30),
        lambda file: write(file.with_name("b"), "same").replace(file),
    ],
    ids=["longer", "rewritten", "replaced"],
)
def test_a_version_changes_whenever_the_content_may_have_changed(tmp_path, change):
    file = write(tmp_path / "a", "same")
    before = list(list_source(folder(tmp_path)).files)
    change(file)
    assert next(iter(list_source(folder(tmp_path)).files)).version != before[0].version


def test_a_version_stays_while_nothing_changes(tmp_path):
    write(tmp_path / "a")
    assert (
        next(iter(list_source(folder(tmp_path)).files)).version
        == next(iter(list_source(folder(tmp_path)).files)).version
    )


def test_a_file_of_the_last_two_seconds_is_not_settled(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "SETTLED_SECONDS", 2.0)
    (tmp_path / "now").write_text("text")
    write(tmp_path / "made older", age=3600)
    assert [file.settled for file in list_source(folder(tmp_path)).files] == [False, False]


def test_a_file_without_a_recent_change_is_settled():
    assert all(file.settled for file in list_source(recipe({"kind": "stdlib"})).files)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"include": ("*.py",)}, ["a.py", "x/b.py", "x/y/c.py"]),
        ({"include": ("x/*",)}, ["x/b.py", "x/notes.md", "x/y/c.py"]),
        ({"include": ("?.py", "*.md")}, ["a.py", "x/notes.md"]),
        ({"include": ("*.py",), "exclude": ("x/y/*",)}, ["a.py", "x/b.py"]),
        ({"exclude": ("*.py",)}, ["x/notes.md"]),
    ],
)
def test_the_recipe_chooses_files(tmp_path, selection, expected):
    for name in ("a.py", "x/b.py", "x/y/c.py", "x/notes.md"):
        write(tmp_path / name)
    assert names(list_source(folder(tmp_path, **selection))) == expected


def test_a_file_that_cannot_be_a_document_is_left_out_with_its_reason(tmp_path):
    inside, outside = tmp_path / "inside", write(tmp_path / "outside" / "secret")
    write(inside / "good")
    write(inside / "empty", "")
    (inside / "leaving").symlink_to(outside)
    (inside / "climbing").symlink_to("../outside/secret")
    (inside / "to a folder").symlink_to(inside)
    (inside / "broken").symlink_to("nowhere")
    (inside / "alias").symlink_to("good")
    os.mkfifo(inside / "pipe")
    (inside / os.fsdecode(b"latin-\xe9")).write_text("text")
    listing = list_source(folder(inside))
    assert names(listing) == ["alias", "good"]
    assert listing.left_out == {
        "a broken link": 1,
        "a link that leaves the folder": 2,
        "a link to a folder": 1,
        "empty": 1,
        "its name is not UTF-8": 1,
        "not a file": 1,
    }


def test_a_listed_file_is_opened_in_another_process(tmp_path):
    write(tmp_path / "a", "content")
    listing = pickle.loads(pickle.dumps(list_source(folder(tmp_path))))
    with listing.open(next(iter(listing.files))) as stream:
        assert stream.read() == b"content"
        assert stream.seek(3) == 3 and stream.read() == b"tent"


def test_a_file_that_changed_since_it_was_listed_is_refused(tmp_path):
    write(tmp_path / "a", "content")
    listing = list_source(folder(tmp_path))
    write(tmp_path / "a", "another")
    with pytest.raises(
        UnreadFile,
        match=r"/a: changed since the corpus was listed; start the build again when no process writes there",
    ):
        listing.open(next(iter(listing.files)))


def test_a_file_that_changes_while_it_is_read_is_refused_at_its_end(tmp_path):
    write(tmp_path / "a", "content" * 100_000)
    listing = list_source(folder(tmp_path))
    with listing.open(next(iter(listing.files))) as stream:
        stream.read(7)
        with (tmp_path / "a").open("a") as appending:
            appending.write("more")
        with pytest.raises(UnreadFile, match="changed since the corpus was listed"):
            stream.read()


def test_a_removed_file_is_reported(tmp_path):
    write(tmp_path / "a")
    listing = list_source(folder(tmp_path))
    (tmp_path / "a").unlink()
    with pytest.raises(UnreadFile, match=r"/a: it was listed, and is gone now"):
        listing.open(next(iter(listing.files)))


@pytest.mark.parametrize("become", [os.mkfifo, os.mkdir])
def test_a_file_that_has_become_something_else_is_not_waited_for(tmp_path, become):
    write(tmp_path / "a")
    listing = list_source(folder(tmp_path))
    (tmp_path / "a").unlink()
    become(tmp_path / "a")
    with pytest.raises(UnreadFile):
        listing.open(next(iter(listing.files)))


def test_a_missing_directory_is_one_clear_error(tmp_path):
    missing = tmp_path / "missing"
    expected = f"dataset small-corpus: source.path: found nothing at {missing}, expected a directory"
    with pytest.raises(ValueError, match=re.escape(expected)):
        list_source(folder(missing))


def test_a_file_instead_of_the_directory_is_reported(tmp_path):
    write(tmp_path / "file")
    with pytest.raises(ValueError, match=r"found a file at .*, expected a directory"):
        list_source(folder(tmp_path / "file"))


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every folder")
def test_a_folder_without_permission_is_one_clear_error(tmp_path):
    write(tmp_path / "locked" / "a")
    (tmp_path / "locked").chmod(0)
    with pytest.raises(ValueError, match=r"/locked: found no permission to read it, expected a readable folder"):
        list_source(folder(tmp_path))
    (tmp_path / "locked").chmod(0o755)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every folder")
def test_a_folder_that_is_excluded_needs_no_permission(tmp_path):
    write(tmp_path / "lost+found" / "a")
    write(tmp_path / "b")
    (tmp_path / "lost+found").chmod(0)
    (tmp_path / "c").symlink_to(tmp_path / "lost+found" / "a")
    listing = list_source(folder(tmp_path, exclude=("lost+found/*",)))
    (tmp_path / "lost+found").chmod(0o755)
    assert names(listing) == ["b"] and list(listing.unread) == [("c", "no permission to follow it")]


def test_a_folder_is_passed_over_if_a_pattern_excludes_all_that_may_be_below_it(tmp_path, monkeypatch):
    for name in ("a/b/one.txt", "a/c/two.txt", "d/b/three.txt"):
        write(tmp_path / name)
    scanned, scandir = list[str](), os.scandir

    def scanning(path: str) -> Any:
        scanned.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scanning)
    for pattern, files, passed in (
        ("a/*", ["d/b/three.txt"], {"a", "a/b", "a/c"}),
        ("*/b/*", ["a/c/two.txt"], {"a/b", "d/b"}),
        ("a/*.txt", ["d/b/three.txt"], set()),
    ):
        scanned.clear()
        assert names(list_source(folder(tmp_path, exclude=(pattern,)))) == files
        assert {"a", "a/b", "a/c", "d", "d/b"} - {os.path.relpath(path, tmp_path) for path in scanned} == passed


def test_an_empty_corpus_names_the_folder_the_globs_and_what_was_left_out(tmp_path):
    write(tmp_path / "a.md", "")
    with pytest.raises(ValueError, match=r"found no document in .*include \['\*\.md'\].*1 left out \(empty\)") as error:
        list_source(folder(tmp_path, include=("*.md",)))
    assert str(tmp_path) in str(error.value)


def test_the_standard_library_is_found_without_its_tests():
    listing = list_source(recipe({"kind": "stdlib"}))
    library_names = set(names(listing))
    assert {"os.py", "json/decoder.py", "asyncio/events.py"} <= library_names
    assert not [name for name in library_names if {"test", "tests", "site-packages", "idlelib"} & set(name.split("/"))]
    assert len(library_names) > 400
    assert sum(file.bytes for file in listing.files) > 5_000_000


@pytest.mark.parametrize("folder", ["python3.11", "python311.zip/lib"])
def test_a_python_without_library_sources_is_one_clear_error(tmp_path, monkeypatch, folder):
    write(tmp_path / "python3.11" / "__pycache__" / "os.cpython-311.pyc", "compiled")
    write(tmp_path / "python3.11" / "site-packages" / "installed.py", "not the library")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / folder))
    expected = f"dataset small-corpus: found no sources of Python's standard library in {tmp_path / folder}"
    with pytest.raises(ValueError, match=re.escape(expected)) as error:
        list_source(recipe({"kind": "stdlib"}))
    assert "expected about 600 .py files" in str(error.value)


@pytest.mark.parametrize("pattern", ["**/*.txt", "**/a.txt", "b/**/a.txt"])
def test_two_stars_and_a_slash_match_no_folder_too(tmp_path, pattern: str):
    for name in ("a.txt", "b/a.txt", "b/c/a.txt", "ba.md"):
        write(tmp_path / name)
    matches = ["b/a.txt", "b/c/a.txt"]
    assert names(list_source(folder(tmp_path, include=(pattern,)))) == (
        matches if pattern.startswith("b") else ["a.txt", *matches]
    )


def test_a_folder_whose_path_is_longer_than_the_system_opens_is_named_and_can_be_excluded(tmp_path, monkeypatch):
    write(tmp_path / "a.txt")
    monkeypatch.chdir(tmp_path)
    for _ in range(30):  # each is made in the one above, as their path cannot be named
        Path("d" * 200).mkdir()
        os.chdir("d" * 200)
    with pytest.raises(ValueError, match=r"a folder that begins with d+: found a path of \d+ bytes.*source.exclude"):
        list_source(folder(tmp_path))
    assert names(list_source(folder(tmp_path, exclude=("d" * 200 + "/*",)))) == ["a.txt"]
    with pytest.raises(ValueError, match=r"source.path: found a path that is too long at"):
        list_source(folder(tmp_path / ("d" * 300)))
