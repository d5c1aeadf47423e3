"""News: a person who follows a training reads sentences, and none of the ledger's internal words."""

from pathlib import Path

from slipway.resources.home import Home
from slipway.resources.trainings import foreground
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.record import causes, ledger
from slipway.trainer.record.fence import Token
from tests.cli import homes


def lines_of(store: TrainingStore) -> list[str]:
    """The lines of a training that is over, without the time at their beginning."""
    return [line.partition(" ")[2] for line in foreground.until_ended(store, None, "ada")]


def note(store: TrainingStore, writer: str, event: str, **fields: object) -> None:
    ledger.note(store.folder, Token(1), writer, event, **fields)


def test_the_course_of_a_training_is_reported_in_sentences(tmp_path: Path):
    store = homes.running(Home(tmp_path), "tiny", 50)
    note(store, "rank-0", "phase", phase="staging", step=0)
    note(store, "rank-0", "phase", phase="validating", step=50)
    note(store, "rank-0", "started", world=2, device="cpu", torch="2.9")
    note(store, "rank-0", "committed", step=50, commit="x", seconds=0.1, bytes=2_000_000, tier="durable")
    store.record_exit(1, "failed", "rank 1 was killed", "job watch", homes.NODES, kind=causes.KILLED)
    store.want("stop", "ada by hand", "enough")
    lines = lines_of(store)
    assert "ada wants the training to run: the test wants it" in lines
    assert "the next start uses node-0, node-1: first start" in lines
    assert "the nodes copy the shards that the steps read" in lines
    assert not [line for line in lines if "validating" in line]
    assert "2 ranks started on cpu" in lines
    assert "step 50: loss 2.5000, 0.100 s" in lines
    assert "checkpoint of step 50 saved on the durable tier, 2.0 MB" in lines
    assert "ada by hand wants the training to stop: enough" in lines
    assert "the start failed: rank 1 was killed" in lines


def test_the_mark_that_a_generation_is_over_is_reported_with_its_reason_or_not_at_all(tmp_path: Path):
    store = homes.ended(Home(tmp_path), "tiny", "succeeded", "all steps done", 100)
    note(store, "supervisor", "detected")
    note(store, "between-steps-0", "detected", rank=0, kind=causes.GROWN, reason="node-1 came back")
    lines = lines_of(store)
    assert "the ranks start again: node-1 came back" in lines
    assert not [line for line in lines if "detected" in line]


def test_an_incident_is_reported_with_its_class_its_nodes_and_what_was_done(tmp_path: Path):
    store = homes.ended(Home(tmp_path), "tiny", "succeeded", "all steps done", 100)
    incident = {
        "kind": causes.OUT_OF_MEMORY,
        "cause": "no memory\nat step 51",
        "nodes": ["node-1"],
        "action": "went on",
    }
    note(store, "rank-0", "incident", id="x", step=51, **incident)
    assert "incident (out of memory) on node-1: no memory; went on" in lines_of(store)


def test_events_that_only_figures_are_made_of_are_not_reported(tmp_path: Path):
    store = homes.ended(Home(tmp_path), "tiny", "succeeded", "all steps done", 100)
    before = lines_of(store)
    for event in ("bound", "node_usage", "compiled", "staged", "ranks_gone", "met", "of_a_later_version"):
        note(store, "rank-0", event, step=1)
    assert lines_of(store) == before
