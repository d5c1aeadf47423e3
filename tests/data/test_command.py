"""`python -m assets.datasets`: the snapshots of a dataset, and what one has otherwise than another."""

import pytest

from assets.datasets.__main__ import main
from tests.data.builds import build
from tests.data.corpora import make_corpus, recipe_for, write_file


@pytest.fixture
def changed(corpus, durable):
    """Two snapshots, a document added between them."""
    old = build(recipe_for(corpus, shard_tokens=400), durable)
    write_file(corpus / "added.py", "added text")
    return old, build(recipe_for(corpus, shard_tokens=400), durable)


def run(durable, *arguments: str) -> int:
    return main(["--durable", str(durable), *arguments])


def test_the_history_lists_the_snapshots_the_latest_last(durable, changed, capsys):
    assert run(durable, "history", "small-corpus") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["~1", changed[0].sha256[:12]], ["~0", changed[1].sha256[:12]]]
    assert "61 documents" in lines[1]


def test_a_collected_snapshot_is_told_in_the_history(durable, changed, capsys):
    (durable / "snapshots" / f"{changed[0].sha256}.json").unlink()
    run(durable, "history", "small-corpus")
    assert "there is no such snapshot" in capsys.readouterr().out.splitlines()[0]


def test_the_last_two_snapshots_are_compared(durable, changed, capsys):
    assert run(durable, "diff", "small-corpus") == 0
    told = capsys.readouterr().out
    assert "documents added: 1 (added.py#0)" in told
    assert "documents same: 60" in told
    assert "shared" in told


def test_any_two_snapshots_are_compared_by_the_beginning_of_their_names(durable, changed, capsys):
    old, new = (made.sha256[:12] for made in changed)
    assert run(durable, "diff", "small-corpus", new, old) == 0
    assert "documents removed: 1 (added.py#0)" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["~2", "zzz", ""])
def test_a_name_that_means_no_snapshot_or_several_is_refused_with_those_there_are(durable, changed, capsys, name):
    assert run(durable, "diff", "small-corpus", name) == 1
    assert f"expected one of {changed[0].sha256[:12]}, {changed[1].sha256[:12]}" in capsys.readouterr().err


def test_a_dataset_without_a_snapshot_says_what_to_do(tmp_path, capsys):
    make_corpus(tmp_path / "corpus")
    assert run(tmp_path, "diff", "unknown") == 1
    assert "dataset unknown: found no snapshot" in capsys.readouterr().err
