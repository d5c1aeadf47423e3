"""Asked: what a server is asked is kept as counts, never as texts, and compared with what was trained on."""

import asyncio
import contextlib
import datetime
from pathlib import Path

import pytest

from slipway.assets.drift import LEAST_REQUESTS, count_trained, live_drift, live_figures
from slipway.serving import request_statistics
from slipway.serving.front import request_counter as counting
from slipway.serving.front.request_counter import RequestCounter
from slipway.serving.records import ServedVersion, ServingRecords
from slipway.serving.request_statistics import KEPT_DAYS, RequestRecords, TextCounts
from tests.assets.datasets.snapshots import make_snapshot
from tests.conftest import PATIENCE_SECONDS, until
from tests.serving.fronts import front
from tests.serving.models import exported

MODEL = "small"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine all is counted all the same."""
    monkeypatch.setattr(counting, "END_SECONDS", PATIENCE_SECONDS)


ENGLISH = "The quick brown fox jumps over the lazy dog, and nobody minds."
GERMAN = "Der schnelle braune Fuchs springt über den faulen Hund, und niemand stört sich daran."


def counts(text: str, times: int) -> TextCounts:
    text_counts = TextCounts()
    for _ in range(times):
        text_counts.add(text, list(text.encode()))
    return text_counts


def offered(durable: Path, version: ServedVersion, *texts: str) -> None:
    """A counter that was offered texts, has counted them, and has ended."""
    counter = RequestCounter(durable, MODEL, lambda: version)

    async def count() -> None:
        for text in texts:
            counter.offer(text)
        task = asyncio.create_task(counter.run())
        await counter.end()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(count())


def test_a_text_is_counted_by_its_length_its_language_and_its_tokens():
    text_counts = counts(GERMAN, 2)
    assert (text_counts.texts, text_counts.languages, text_counts.lengths) == (2, {"de": 2}, {"64": 2})
    assert sum(text_counts.tokens.values()) == 2 * len(GERMAN.encode()) and len(text_counts.tokens) < 40


def test_counts_are_kept_and_no_text_is(tmp_path: Path):
    version = exported(tmp_path, 1)
    offered(tmp_path, version, ENGLISH, "a secret: hunter2", ENGLISH)
    text_counts = RequestRecords(tmp_path, MODEL).recent_counts(
        request_statistics.tokenizer_of(tmp_path / version.folder), 1
    )
    assert text_counts.texts == 3 and text_counts.languages["en"] >= 2
    written = b"".join(path.read_bytes() for path in (ServingRecords(tmp_path).folder).rglob("*.json"))
    assert b"hunter2" not in written and b"fox" not in written and len(written) < 2000


def test_a_front_that_starts_again_goes_on_counting(tmp_path: Path):
    version = exported(tmp_path, 1)
    for _ in range(2):
        offered(tmp_path, version, ENGLISH)
    assert (
        RequestRecords(tmp_path, MODEL)
        .recent_counts(request_statistics.tokenizer_of(tmp_path / version.folder), 1)
        .texts
        == 2
    )


def test_what_does_not_fit_into_the_queue_is_left_out_and_said_to_be(tmp_path: Path):
    version = exported(tmp_path, 1)
    offered(tmp_path, version, *[ENGLISH] * (counting.WAITING + 5))
    text_counts = RequestRecords(tmp_path, MODEL).recent_counts(
        request_statistics.tokenizer_of(tmp_path / version.folder), 1
    )
    assert (text_counts.texts, text_counts.left_out) == (counting.WAITING, 5)


def test_old_days_are_forgotten_and_only_the_last_ones_are_joined(tmp_path: Path):
    records, now = RequestRecords(tmp_path, MODEL), datetime.datetime.now(datetime.UTC).date()
    days = [(now - datetime.timedelta(days=age)).isoformat() for age in (0, 3, KEPT_DAYS + 2)]
    for day in days:
        records.keep(day, "a-tokenizer", "here", counts(ENGLISH, 1))
    records.keep(days[0], "another", "here", counts(ENGLISH, 1))
    records.forget_old()
    assert records.recent_counts("a-tokenizer", 1).texts == 1 and records.recent_counts("a-tokenizer", 999).texts == 2


def test_what_stands_beside_the_counts_and_is_none_is_passed_over(tmp_path: Path):
    records, today = RequestRecords(tmp_path, MODEL), request_statistics.today()
    records.keep(today, "a-tokenizer", "a.host.with.dots", counts(ENGLISH, 1))
    folder = ServingRecords(tmp_path).folder / MODEL / request_statistics.REQUESTS
    for name in ("0.json", "notes.json", "2020-01-01.json", f"{today}.json"):
        (folder / name).touch()
    for name in ("1.json", "2020-01-01.a-tokenizer.here.json", f"{today}.a-tokenizer.here.json"):
        (folder / name).mkdir()
    records.forget_old()
    assert records.recent_counts("a-tokenizer", 1).texts == 1


def test_questions_in_another_language_differ_from_what_was_trained_on_and_equal_ones_do_not():
    trained = counts(ENGLISH, 300)
    same, other = (live_figures(trained, counts(text, 300)) for text in (ENGLISH, GERMAN))
    assert max(same.values()) == 0.0
    assert other["languages"] > 1.0 and other["tokens"] > 0.02


def test_too_few_questions_tell_nothing_and_enough_are_compared_with_the_training_s_documents(tmp_path: Path):
    version, snapshot = exported(tmp_path, 1), make_snapshot(tmp_path)
    tokenizer = request_statistics.tokenizer_of(tmp_path / version.folder)
    assert live_drift(tmp_path, MODEL, version, snapshot.sha256) is None
    count_trained(tmp_path, MODEL, version, snapshot.sha256)
    trained = RequestRecords(tmp_path, MODEL).trained(snapshot.sha256, tokenizer)
    assert trained is not None and trained.texts == 3
    records = RequestRecords(tmp_path, MODEL)
    for times, known in ((LEAST_REQUESTS - 1, False), (LEAST_REQUESTS, True)):
        records.keep(request_statistics.today(), tokenizer, "here", counts(ENGLISH, times))
        drift = live_drift(tmp_path, MODEL, version, snapshot.sha256)
        assert drift is not None and drift.texts == times and bool(drift.figures) is known
    assert drift is not None and drift.cause > 1.0 and drift.languages == {"en": 1.0}


@pytest.mark.nightly
def test_a_front_keeps_what_it_was_asked_when_it_ends(tmp_path: Path):
    version = exported(tmp_path, 1)
    with front(tmp_path) as running:
        assert running.outcome(running.wish(version)) == "all"
        for _ in range(3):
            assert running.ask(prompt=ENGLISH)[0] == 200
    tokenizer = request_statistics.tokenizer_of(tmp_path / version.folder)
    until(lambda: RequestRecords(tmp_path, MODEL).recent_counts(tokenizer, 1).texts == 3, "the counts")
