"""Promotion: the alias moves for a checkpoint that passed against the champion of now, and for nothing else."""

import contextlib
import os
import socket
import threading
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from slipway.resources.errors import Unavailable
from slipway.resources.home import Home
from slipway.resources.mlflow.registry import CHAMPION, FOLDER_TAG, MANIFEST_TAG, Registry, Version
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions.promotion import (
    Judgement,
    NotJudged,
    NotPromoted,
    Promotions,
    history,
    is_mirrored,
    is_outdated,
    undecided,
)
from slipway.resources.promotions.promotion import champion as champion_on_record
from slipway.trainer.base import codec, lock
from slipway.trainer.base.paths import CODE
from tests.resources.trainings.lab import at_once

MODEL, BY = "tiny", "a test"


@pytest.fixture
def model(registry: Registry, home: Home) -> Promotions:
    return Promotions(registry, home.durable, MODEL)


def registered(model: Promotions, name: str) -> Version:
    """A version of a checkpoint whose manifest has this name."""
    folder = model.durable / "checkpoints" / name
    return model.registry.register(MODEL, folder, "", {MANIFEST_TAG: name, FOLDER_TAG: f"checkpoints/{name}"})


def judge(model: Promotions, version: Version, passed: bool = True, undecided: str = "") -> None:
    """Judge against the champion of now."""
    current = model.champion()
    judgement = Judgement(
        MODEL, version.manifest, current.manifest if current else "", {"check": passed}, BY, undecided=undecided
    )
    model.record(judgement)


def champion(model: Promotions) -> str | None:
    version_held = model.registry.aliased(MODEL, CHAMPION)
    return version_held.manifest if version_held else None


def promoted(model: Promotions, name: str) -> Version:
    version = registered(model, name)
    judge(model, version)
    model.promote(version, BY, "it passed")
    return version


def test_a_version_that_was_not_judged_is_not_promoted(model: Promotions):
    with pytest.raises(NotJudged, match="model tiny: version 1 was not judged"):
        model.promote(registered(model, "a"), BY, "")
    assert champion(model) is None


def test_the_champion_is_the_version_promoted_last_wherever_mlflows_alias_was_moved(model: Promotions):
    promoted(model, "first"), promoted(model, "second")
    model.registry.point(MODEL, CHAMPION, "1")
    current = model.champion_version()
    assert current is not None and (current.number, current.manifest) == ("2", "second")


def test_a_version_that_failed_a_check_is_not_promoted(model: Promotions):
    version = registered(model, "a")
    judge(model, version, passed=False)
    with pytest.raises(NotPromoted, match="version 1 did not pass check against no champion"):
        model.promote(version, BY, "")
    assert champion(model) is None


def test_a_version_that_passed_against_another_champion_is_judged_again_first(model: Promotions):
    late = registered(model, "late")
    judge(model, late)
    promoted(model, "early")
    with pytest.raises(NotJudged, match="version 1 was not compared with the current champion, version 2"):
        model.promote(late, BY, "")
    judge(model, late)
    model.promote(late, BY, "")
    assert champion(model) == "late"


def test_a_version_that_waits_for_a_person_is_not_promoted(model: Promotions):
    version = registered(model, "a")
    judge(model, version, undecided="the champion is damaged")
    with pytest.raises(NotPromoted, match="version 1 waits: the champion is damaged"):
        model.promote(version, BY, "")
    assert champion(model) is None


def test_what_waits_is_outdated_once_there_is_another_champion(model: Promotions):
    promoted(model, "damaged")
    waiting = registered(model, "waiting")
    judge(model, waiting, undecided="the champion is damaged")
    undecided_judgement = undecided(model.durable, "waiting")
    assert undecided_judgement is not None and not is_outdated(model.durable, undecided_judgement)
    promoted(model, "another")
    assert is_outdated(model.durable, undecided_judgement)


@pytest.mark.parametrize("name", ["bob's-model", 'bob"s-model', "bob`s-model", "bob%s_model"])
def test_a_model_is_registered_and_found_whatever_quotes_its_name_has(registry: Registry, home: Home, name: str):
    tags = {MANIFEST_TAG: "a", FOLDER_TAG: "checkpoints/a"}
    version = registry.register(name, home.durable / "checkpoints" / "a", "", tags)
    assert registry.numbers(name) == [1]
    assert registry.version(name, 1) == registry.find(name, "a") == version
    assert registry.find(name, "b' OR 'b' = 'b") is None


def test_a_name_that_no_filter_of_mlflow_can_have_is_refused(registry: Registry):
    with pytest.raises(ValueError, match="expected a text without either"):
        registry.numbers("""a'b"c""")


def test_an_alias_that_somebody_sets_in_mlflow_makes_no_champion(model: Promotions):
    rejected = registered(model, "rejected")
    judge(model, rejected, passed=False)
    model.registry.point(MODEL, CHAMPION, rejected.number)
    assert model.champion() is None and model.champion_version() is None
    promoted(model, "good")
    assert champion(model) == "good"


@pytest.mark.parametrize("locked", [True, False])
def test_of_many_promotions_at_one_moment_each_was_judged_against_the_one_before(
    model: Promotions, locked: bool, monkeypatch: pytest.MonkeyPatch
):
    """Each candidate is judged by its name; the best one, the lowest, must be left, even where locks are ignored."""
    candidates = [registered(model, f"{number}") for number in (5, 2, 7, 1, 4, 3)]

    def run_for_it(version: Version) -> None:
        while True:
            current = model.champion()
            compared = current.manifest if current else ""
            passed = not compared or version.manifest < compared
            model.record(Judgement(MODEL, version.manifest, compared, {"lower": passed}, BY))
            with contextlib.suppress(NotJudged):
                model.promote(version, BY, "")
                return

    if not locked:
        monkeypatch.setattr(lock, "at_once", contextlib.nullcontext)
    results = at_once(*(lambda version=version: run_for_it(version) for version in candidates))
    assert all(result is None or type(result) is NotPromoted for result in results), results
    chain = [promotion_record.manifest for promotion_record in history(model.durable, MODEL)]
    assert chain == sorted(chain, reverse=True) and chain[-1] == "1" == champion(model)
    assert [
        promotion_record.judgement.champion
        for promotion_record in history(model.durable, MODEL)
        if promotion_record.judgement
    ] == ["", *chain[:-1]]


def test_two_writers_that_ignore_locks_can_set_a_new_alias_at_one_moment(
    model: Promotions, monkeypatch: pytest.MonkeyPatch
):
    """MLflow looks for the alias and inserts it where it found none: here both look before either of them inserts."""
    versions = [registered(model, name) for name in ("a", "b")]
    both_looked, merge = threading.Barrier(2), Session.merge
    looks = iter(range(2))

    def looked(session: Session, row: object) -> object:
        row_merged = merge(session, row)
        if next(looks, None) is not None:
            both_looked.wait(30)
        return row_merged

    monkeypatch.setattr(Session, "merge", looked)
    calls = (lambda number=version.number: model.registry.point(MODEL, CHAMPION, number) for version in versions)
    assert at_once(*calls) == [None, None]
    assert champion(model) in ("a", "b")


def test_a_promotion_that_died_before_the_alias_moved_is_completed_by_the_next_call(model: Promotions):
    version = promoted(model, "a")
    model.registry._client.delete_registered_model_alias(MODEL, CHAMPION)
    model.promote(version, BY, "again")
    assert champion(model) == "a" and len(history(model.durable, MODEL)) == 1


def test_a_promotion_while_mlflow_is_away_holds_and_the_alias_follows_when_it_is_back(
    model: Promotions, home: Home, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    promoted(model, "a")
    second = registered(model, "b")
    judge(model, second)
    with socket.socket() as taken:  # and not listening: a connection is refused
        taken.bind(("127.0.0.1", 0))
        gone = Registry(Tracking(uri=f"http://127.0.0.1:{taken.getsockname()[1]}"), home.durable)
        Promotions(gone, home.durable, MODEL).promote(second, BY, "it passed")
    on_record = champion_on_record(home.durable, MODEL)
    assert on_record is not None and (on_record.manifest, on_record.before) == ("b", "1")
    assert champion(model) == "a" and not is_mirrored(home.durable, MODEL)
    assert model.mirror()
    assert champion(model) == "b" and is_mirrored(home.durable, MODEL)


def test_a_promotion_waits_for_a_writer_that_hangs_no_longer_than_its_deadline(
    model: Promotions, monkeypatch: pytest.MonkeyPatch
):
    version = registered(model, "a")
    judge(model, version)
    monkeypatch.setattr("slipway.resources.mlflow.registry.WRITER_SECONDS", 0.2)
    with (
        lock.exclusive(model.durable / "models" / MODEL),
        pytest.raises(Unavailable, match=f"another process has been changing it .* is locked by process {os.getpid()}"),
    ):
        model.promote(version, BY, "")
    assert model.promote(version, BY, "").manifest == "a"


def test_a_damaged_judgement_allows_nothing_and_is_named(model: Promotions):
    version = registered(model, "a")
    judge(model, version)
    path = model.durable / "models" / MODEL / "judgements" / "a.json"
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(codec.UndecodableRecord, match=r"a\.json"):
        model.promote(version, BY, "")
    assert champion(model) is None


def test_the_alias_is_moved_in_one_place():
    rooms = ("assets", "cli", "deploy", "operations", "resources", "sensors")
    texts = {path: path.read_text() for room in rooms for path in (CODE / room).rglob("*.py")}
    assert _with("set_registered_model_alias", texts) == ["resources/mlflow/registry.py"]
    assert _with("CHAMPION, ", {path: text for path, text in texts.items() if ".point(" in text}) == [
        "resources/promotions/promotion.py"
    ]


def _with(expression: str, texts: dict[Path, str]) -> list[str]:
    return [path.relative_to(CODE).as_posix() for path, text in texts.items() if expression in text]
