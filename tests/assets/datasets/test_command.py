"""`slipway data history` and `diff`: the snapshots of a dataset, and the difference between two of them."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from slipway.assets.datasets.garbage import Garbage
from slipway.assets.datasets.snapshots import pointer
from slipway.cli import data_lines
from slipway.cli.main import main
from slipway.operations.takedown import TakedownReport
from tests.assets.datasets.builds import build
from tests.assets.datasets.corpora import recipe_for, write_file


@pytest.fixture
def changed(corpus, durable):
    """Two snapshots, a document added between them."""
    old = build(recipe_for(corpus, shard_tokens=400), durable)
    write_file(corpus / "added.py", "added text")
    return old, build(recipe_for(corpus, shard_tokens=400), durable)


@pytest.fixture
def run(durable, monkeypatch):
    """The command, in a home with the durable tier of the test."""
    monkeypatch.setenv("SLIPWAY_HOME", str(durable.parent / "home"))
    (durable.parent / "home").mkdir()
    (durable.parent / "home" / "durable").symlink_to(durable)
    return lambda *arguments: main(["data", *arguments])


def test_the_history_lists_the_snapshots_the_latest_last(run, changed, capsys):
    assert run("history", "small-corpus") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["~1", changed[0].sha256[:12]], ["~0", changed[1].sha256[:12]]]
    assert "61 documents" in lines[1]


def test_the_history_shows_that_a_snapshot_was_collected(run, durable, changed, capsys):
    (durable / "snapshots" / f"{changed[0].sha256}.json").unlink()
    run("history", "small-corpus")
    assert "its manifest is gone: a collection of garbage" in capsys.readouterr().out.splitlines()[0]


def test_the_last_two_snapshots_are_compared(run, changed, capsys):
    assert run("diff", "small-corpus") == 0
    printed = capsys.readouterr().out
    assert "documents added: 1 (added.py#0)" in printed
    assert "documents same: 60" in printed
    assert "shared" in printed


def test_a_comparison_shows_which_rules_languages_and_sources_differ(run, corpus, durable, capsys):
    build(recipe_for(corpus, shard_tokens=400), durable)
    write_file(corpus / "copies" / "copy.py", (corpus / "package0" / "module0.py").read_text())
    write_file(corpus / "notes" / "new.py", "a new text")
    build(recipe_for(corpus, shard_tokens=400), durable)
    assert run("diff", "small-corpus") == 0
    printed = capsys.readouterr().out.splitlines()
    sizeless = [line.rpartition(", ")[0] for line in printed]
    assert "left out by rule exact_duplicate: 0 to 1 documents" in sizeless
    assert "language python: 60 to 61 documents" in sizeless
    # The first of two equal documents is kept, and `copies` comes before `package0`.
    assert "source copies: 0 to 1 documents" in sizeless
    assert "source package0: 20 to 19 documents" in sizeless
    [copies] = [line for line in printed if line.startswith("source copies")]
    assert re.search(r", 0 bytes to [1-9]\S* (bytes|kB)$", copies), "in the unit that fits"
    assert run("diff", "small-corpus", "--json") == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [change["name"] for change in groups["source"]] == ["copies", "notes", "package0"]


def test_any_two_snapshots_are_compared_by_the_beginning_of_their_names(run, changed, capsys):
    old, new = (snapshot.sha256[:12] for snapshot in changed)
    assert run("diff", "small-corpus", new, old) == 0
    assert "documents removed: 1 (added.py#0)" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["~2", "zzz", ""])
def test_a_name_of_no_snapshot_or_of_several_is_refused_with_a_list_of_all_snapshots(run, changed, capsys, name):
    assert run("diff", "small-corpus", name) == 1
    assert f"expected one of {changed[0].sha256[:12]}, {changed[1].sha256[:12]}" in capsys.readouterr().err


def test_an_unknown_dataset_is_refused_with_a_list_of_all_datasets(run, changed, capsys):
    assert run("diff", "unknown") == 1
    assert (
        capsys.readouterr().err == "slipway: dataset unknown: found none that begins so, expected one of small-corpus\n"
    )


def test_a_snapshot_is_inspected_with_what_was_left_out_and_the_files_that_are_not_read(run, corpus, durable, capsys):
    write_file(corpus / "copy.py", (corpus / "package0" / "module0.py").read_text())
    write_file(corpus / "nothing.py", "")
    build(recipe_for(corpus, shard_tokens=400), durable)
    assert run("inspect", "small") == 0
    printed = capsys.readouterr().out
    assert "60 of 61 documents are kept (98.4%)" in printed
    assert "left out, exact_duplicate: 1 (1.6%)" in printed and "because of copy.py#0" in printed
    assert "not read, empty: nothing.py" in printed


def test_an_older_snapshot_is_inspected_though_its_documents_are_gone_or_others_by_now(run, corpus, durable, capsys):
    for name in ("gone.py", "other.py"):
        write_file(corpus / name, (corpus / "package0" / "module0.py").read_text())
    build(recipe_for(corpus), durable)
    (corpus / "gone.py").unlink()
    write_file(corpus / "other.py", "another text by now")
    build(recipe_for(corpus), durable)
    for there in (True, False):
        assert run("inspect", "small", "~1") == 0
        printed = capsys.readouterr().out
        assert "  gone.py#0: because of" in printed or "  other.py#0: because of" in printed
        assert "another text by now" not in printed
        assert there or "      " not in printed
        for segment in (durable / "segments").iterdir():
            segment.unlink()


def test_one_reason_is_inspected_and_an_unknown_one_is_refused_with_those_there_are(run, corpus, durable, capsys):
    write_file(corpus / "copy.py", (corpus / "package0" / "module0.py").read_text())
    build(recipe_for(corpus, shard_tokens=400), durable)
    assert run("inspect", "small", "--reason", "exact_duplicate", "--json") == 0
    assert '"because": "copy.py#0"' in capsys.readouterr().out
    assert run("inspect", "small", "--reason", "x") == 1
    assert "expected one of exact_duplicate" in capsys.readouterr().err


def test_a_dataset_with_one_snapshot_only_has_nothing_to_be_compared_with(run, corpus, durable, capsys):
    only = build(recipe_for(corpus, shard_tokens=400), durable)
    assert run("diff", "small-corpus") == 1
    expected = f"dataset small-corpus: found one snapshot, {only.sha256[:12]}, expected an earlier one too"
    assert expected in capsys.readouterr().err


def test_a_snapshot_compared_with_itself_differs_in_nothing(run, changed, capsys):
    assert run("diff", "small-corpus", "~0", "~0") == 0
    assert capsys.readouterr().out == f"both are snapshot {changed[1].sha256[:12]}: nothing differs\n"


def test_of_many_snapshots_the_latest_are_listed(run, durable, changed, monkeypatch, capsys):
    monkeypatch.setattr(pointer, "LISTED", 1)
    assert run("diff", "small-corpus", "~7") == 1
    printed = capsys.readouterr().err
    assert f"~7 selects 0 snapshots, expected one of {changed[1].sha256[:12]}, or an earlier one" in printed
    assert "slipway data history small-corpus" in printed


def test_a_snapshot_of_which_nothing_was_left_out_says_so(run, corpus, durable, capsys):
    build(recipe_for(corpus, shard_tokens=400), durable)
    assert run("inspect", "small") == 0
    assert "no document was left out" in capsys.readouterr().out.splitlines()


def report(**changes) -> TakedownReport:
    complete = TakedownReport("texts", ("a#0",), (), "f" * 64, {}, (), (), ())
    return dataclasses.replace(complete, **changes)


def test_a_takedown_that_nothing_has_seen_says_so():
    assert data_lines.takedown(report()) == [
        "taken down: a#0",
        f"texts points at snapshot {'f' * 64}",
        "in no other snapshot",
        "seen by no training, and by no registered model",
    ]


def test_a_takedown_names_trainings_that_wait_with_what_stops_them():
    lines = data_lines.takedown(report(waiting=("small-1",)))
    assert lines[-1] == "training small-1 waits to read it; to stop it: slipway stop small-1"


def test_a_long_takedown_is_cut_and_no_name_commands_the_terminal():
    lines = data_lines.takedown(report(documents=tuple(f"a\x1b{number}#0" for number in range(1020))))
    assert lines[0] == "taken down: a\\x1b0#0"
    assert lines[data_lines.MAX_LISTED] == "taken down: 1,000 more; all of them: --json"
    assert len(lines) == data_lines.MAX_LISTED + 4


@pytest.mark.parametrize(
    ("files", "size", "applied", "expected"),
    [
        (0, 0, False, "would remove nothing; snapshots that stay: 1"),
        (1, 640, False, "would remove 1 file of 640 bytes; snapshots that stay: 1; to remove it: --apply"),
        (2, 3_200_000, True, "removed 2 files of 3.2 MB; snapshots that stay: 1"),
    ],
)
def test_garbage_is_reported_in_the_unit_that_fits(files, size, applied, expected):
    assert data_lines.garbage(Garbage((Path("x"),) * files, size, 1), applied) == expected
