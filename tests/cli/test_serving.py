"""`slipway models serve`, `served`, `ask`: what they say where nothing is served, and what is on record."""

import json
import os
from pathlib import Path

import pytest

from slipway.assets.serving import Serving
from slipway.cli.serving import fitting
from slipway.resources.home import Home
from slipway.resources.serving import wishes
from slipway.serving.records import (
    Answering,
    ServedState,
    ServedVersion,
    ServingRecords,
    Share,
    SwitchPolicy,
    SwitchVerdict,
)
from tests.cli.conftest import Call
from tests.serving.models import exported

MODEL = "slipway-tiny"
FIRST, SECOND = (ServedVersion(digit, digit * 64, f"exports/{digit}", digit * 64) for digit in "12")


@pytest.fixture
def records(tmp_path: Path) -> ServingRecords:
    """One version has all of the traffic."""
    records = ServingRecords(Home(tmp_path / "home").durable)
    state = wishes.serve(records, MODEL, FIRST, SwitchPolicy(), True, "a test", "asked")
    records.judge(state, SwitchVerdict("all", "it is ready"))
    records.say(MODEL, Answering(1, (Share(FIRST, 1.0, True),), "http://127.0.0.1:9"))
    return records


def test_where_nothing_is_served_it_says_what_to_do(slipway: Call):
    assert slipway("models", "served").err == "no model is served; to serve one: slipway models serve MODEL\n"
    result = slipway("models", "ask", MODEL, "def")
    assert (result.code, result.err) == (
        1,
        f"slipway: served model {MODEL}: found none that begins so, and there is none\n",
    )


def test_who_answers_is_a_line_a_version(slipway: Call, records: ServingRecords):
    assert slipway("models", "served").out.splitlines()[1].split() == [
        MODEL,
        f"{MODEL}@1",
        "100%",
        "ready",
        "http://127.0.0.1:9",
    ]
    [served] = json.loads(slipway("models", "served", "--json").out)
    assert (served["want"], served["follows"], served["verdict"]["outcome"]) == ("serve", True, "all")


def test_a_server_that_does_not_answer_is_reported(slipway: Call, records: ServingRecords):
    result = slipway("models", "ask", "slip", "def")
    assert result.code == 1 and "http://127.0.0.1:9: the server does not answer" in result.err


@pytest.mark.parametrize(("length", "tokens"), [(64, 32), (128, 64), (4096, 64)])
def test_a_short_model_is_asked_for_no_more_than_half_of_its_length(tmp_path: Path, length: int, tokens: int):
    version = exported(tmp_path, 1, length=length)
    assert fitting(tmp_path / version.folder) == tokens


def test_a_model_without_a_champion_is_not_served(slipway: Call, records: ServingRecords):
    result = slipway("models", "serve", MODEL)
    assert result.code == 1 and f"model {MODEL}: found none that begins so" in result.err


def test_there_is_no_way_back_from_the_first_version(slipway: Call, records: ServingRecords):
    result = slipway("models", "serve", MODEL, "--back")
    assert (result.code, result.err) == (1, f"slipway: model {MODEL}: no other version has answered before\n")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["2", "--stop"], "found version 2 beside stop, expected one of the two"),
        (["2", "--back"], "found version 2 beside back, expected one of the two"),
        (["--back", "--stop"], "expected one of --back and --stop"),
        (["--stop", "--percent", "10"], "found a share of 10 % beside stop, expected one of the two"),
        (["--percent", "0"], "percent: found 0, expected above 0 and 100 at most"),
        (["--percent", "150"], "percent: found 150, expected above 0 and 100 at most"),
        (["--percent", "nan"], "percent: found nan, expected above 0 and 100 at most"),
    ],
)
def test_wishes_that_contradict_themselves_are_refused(
    slipway: Call, records: ServingRecords, options: list[str], sentence: str
):
    result = slipway("models", "serve", MODEL, *options)
    assert result.code == 2 and sentence in " ".join(result.err.replace("│", " ").split())
    assert records.state(MODEL).number == 1


def test_who_waits_for_a_version_is_told_that_somebody_has_asked_for_something_else(
    slipway: Call, records: ServingRecords, monkeypatch: pytest.MonkeyPatch
):
    def asked_meanwhile(self: Serving, state: ServedState, *_: object) -> ServedState:
        return wishes.serve(records, MODEL, SECOND, SwitchPolicy(), False, "somebody else", "it is better")

    monkeypatch.setattr(Serving, "settle", asked_meanwhile)
    result = slipway("models", "serve", MODEL, "--stop")
    message = "somebody else has asked for something else meanwhile (it is better)"
    assert result.code == 1 and result.err.endswith(
        f"model {MODEL}: {message}; look at it with: slipway models served\n"
    )


def test_a_person_stops_a_model(slipway: Call, records: ServingRecords):
    result = slipway("models", "serve", MODEL, "--stop", "--why", "enough")
    assert (result.code, result.out) == (0, f"{MODEL}: nothing answers any more\n")
    desired = records.state(MODEL).desired
    assert desired is not None and (desired.want, desired.why) == ("stop", "enough") and desired.by.endswith("by hand")


def test_what_nothing_loads_is_listed_first_and_removed_with_apply(slipway: Call, records: ServingRecords):
    (records.durable.parent / "recipes").mkdir()
    for letter in ("1", "2"):
        folder = records.export(MODEL, letter * 64)
        folder.mkdir(parents=True)
        os.utime(folder, (1, 1))
    result = slipway("models", "gc")
    assert result.code == 0 and "would remove 2 exports of 0.000 GB; 0 stay" in result.out, result.err
    assert folder.exists()
    removed = json.loads(slipway("models", "gc", "--apply", "--json").out)
    assert removed["applied"] and len(removed["going"]) == 2 and not folder.exists()
