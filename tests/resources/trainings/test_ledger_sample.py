"""The course of a training: a long ledger is read in bounded memory: its beginning, its end and a sample between."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.resources.trainings import metric_series
from slipway.trainer.base import journal
from slipway.trainer.record import files
from tests.conftest import Marked

STEP = {"samples": 64, "tokens": 65536, "accuracy": 0.5, "perplexity": 9.0, "learning_rate": 1e-4, "seconds": 0.5}
PEAK = """
import json, pathlib, sys
from slipway.assets import plots
from slipway.resources.trainings import metric_series
from slipway.trainer.record import ledger
def look(folder):
    read = metric_series.read_sample(pathlib.Path(folder))
    plots.curve({"training loss": ledger.loss_curve(read.steps)}, "step", "nats")
    status = pathlib.Path("/proc/self/status").read_text()
    return {"steps": len(read.steps), "peak": int(status.split("VmHWM:")[1].split()[0]) * 1024}
print(json.dumps([look(folder) for folder in sys.argv[1:]]))
"""


def step(number: int) -> journal.JournalEvent:
    return {"event": "step", "t": 1000.0 + number, "step": number, "loss": 1.0 / number, **STEP}


def segment(folder: Path, writer: str, *events: journal.JournalEvent) -> Path:
    path = folder / files.LEDGER / f"{writer}.jsonl"
    with journal.Journal(path, durable=False) as log:
        log.append(*events)
    return path


def of_steps(folder: Path, last: int, writer: str = "000001.0000.rank-0") -> Path:
    """A ledger of so many steps, which begins with the start and ends with the advice."""
    started, closing_event = (
        {"event": "started", "t": 1000.0, "world": 8},
        {"event": "bound", "t": 9e9, "recommendation": "buy disks"},
    )
    path = segment(folder, writer, started)
    with open(path, "ab") as log:
        for number in range(1, last + 1):
            log.write(journal.frame(step(number)))
        log.write(journal.frame(closing_event))
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as little of a ledger of kilobytes as otherwise of one of megabytes."""
    for name, size in {"WHOLE_BYTES": 32 << 10, "SAMPLE_BYTES": 512, "END_BYTES": 2048}.items():
        monkeypatch.setattr(metric_series, name, size)


@pytest.mark.usefixtures("small")
def test_of_a_long_ledger_the_beginning_the_end_and_a_sample_between_are_read(tmp_path: Path):
    of_steps(tmp_path, 3000)
    read = metric_series.read_sample(tmp_path)
    steps = [event["step"] for event in read.steps]
    assert read.events[0]["event"] == "started" and read.bound == "buy disks"
    assert steps[:5] == [1, 2, 3, 4, 5] and steps[-5:] == [2996, 2997, 2998, 2999, 3000]
    assert steps == sorted(set(steps)) and 100 < len(steps) < 300
    between = [after - before for before, after in itertools.pairwise(steps)]
    assert max(between) < 3000 / 20, "the pieces are at equal distances"
    assert read.seconds == 9e9 - 1000.0


@pytest.mark.usefixtures("small")
def test_a_segment_that_is_a_little_longer_than_its_ends_loses_no_event(tmp_path: Path):
    of_steps(tmp_path, 3000)
    segment(tmp_path, "000002.0000.rank-0", *(step(number) for number in range(3001, 3006)))
    read = metric_series.read_sample(tmp_path)
    assert [event["step"] for event in read.steps][-6:] == [3000, 3001, 3002, 3003, 3004, 3005]


@pytest.mark.usefixtures("small")
def test_events_of_a_long_ledger_share_the_names_of_their_fields(tmp_path: Path):
    """They are most of an event's memory."""
    of_steps(tmp_path, 3000)
    read = metric_series.read_sample(tmp_path)
    names = {id(name) for event in read.steps for name in event}
    assert len(read.steps) > 80 and len(names) == len(read.steps[0])


@pytest.mark.usefixtures("small")
def test_what_a_small_segment_beside_a_long_one_says_is_read(tmp_path: Path):
    of_steps(tmp_path, 3000)
    segment(tmp_path, "000001.0000.job-watch", {"event": "incident", "t": 5.0, "cause": "a node was lost"})
    assert "a node was lost" in [event.get("cause") for event in metric_series.read_sample(tmp_path).events]


@pytest.mark.usefixtures("small")
def test_damage_in_a_long_ledger_costs_the_damaged_lines_alone(tmp_path: Path):
    path = of_steps(tmp_path, 3000)
    with open(path, "r+b") as log:
        log.seek(1000)
        log.write(b"\0" * 200)
    read = metric_series.read_sample(tmp_path)
    assert read.steps[-1]["step"] == 3000 and len(read.steps) > 80


@pytest.mark.nightly
def test_a_ledger_of_a_million_steps_takes_no_more_memory_than_a_short_one(tmp_path: Path, marked: Marked):
    for name, steps in {"short": 20_000, "long": 1_000_000}.items():
        of_steps(tmp_path / name, steps)
    short, long = tmp_path / "short", tmp_path / "long"
    assert sum(path.stat().st_size for path in long.rglob("*.jsonl")) > 150e6
    command = [sys.executable, "-c", PEAK, str(short), str(long)]
    before, after = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert after["steps"] > 10_000
    # Of a long one, the lines of the sample are there beside their events, and once more as one text.
    assert after["peak"] - before["peak"] < 4 * metric_series.WHOLE_BYTES, (before, after)
