"""`slipway models`: a person promotes and rolls back through the gate, like everybody else."""

import json
import os
import shutil
from pathlib import Path

import pytest

from slipway.assets.promotion import policy_checks as checks
from slipway.assets.suites.generation import answers
from slipway.resources.home import Home
from slipway.resources.mlflow.registry import CHAMPION, FOLDER_TAG, MANIFEST_TAG, Registry, Version
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions.promotion import Judgement, Promotions, history
from slipway.serving.records import ServingRecords
from slipway.trainer.checkpoint.disk import publication
from tests.cli.conftest import Call
from tests.serving.models import exported

MODEL = "slipway-tiny"


@pytest.fixture
def model(tmp_path: Path, database: Path) -> Promotions:
    home = Home(tmp_path / "home")
    home.root.mkdir()
    shutil.copyfile(database, home.root / "mlflow.db")
    return Promotions(Registry(Tracking(uri=home.tracking_uri), home.durable), home.durable, MODEL)


def registered(model: Promotions, step: int) -> Version:
    """A version with a checkpoint whose bytes are there."""
    folder = f"checkpoints/tiny/{step}"
    manifest = publication.write(model.durable / folder, "test/1", {"weights": bytes(step), "progress": b"{}"})
    return model.registry.register(MODEL, model.durable / folder, "", {MANIFEST_TAG: manifest, FOLDER_TAG: folder})


def promoted(model: Promotions, step: int) -> Version:
    version, champion_before = registered(model, step), model.champion()
    model.record(
        Judgement(
            MODEL, version.manifest, champion_before.manifest if champion_before else "", {"a test": True}, "a test"
        )
    )
    model.promote(version, "a test", "it passed")
    return version


def champion(model: Promotions) -> Version | None:
    return model.registry.aliased(MODEL, CHAMPION)


def test_the_champion_is_rolled_back_to_the_one_before_with_the_reason_on_record(slipway: Call, model: Promotions):
    first = promoted(model, 10)
    promoted(model, 20)
    result = slipway("models", "rollback", "slip", "--why", "it repeats itself")
    assert (result.code, result.out) == (0, f"{MODEL}: version 1 became champion, after version 2\n")
    assert champion(model) == first
    last = history(model.durable, MODEL)[-1]
    assert (last.why, last.before) == ("it repeats itself", "2") and last.by.endswith("by hand")
    assert "because it repeats itself" in slipway("models", "show", MODEL).out


def test_a_version_that_was_never_champion_is_no_goal_of_a_rollback(slipway: Call, model: Promotions):
    current_champion = promoted(model, 10)
    registered(model, 20)
    result = slipway("models", "rollback", MODEL, "2")
    assert result.code == 1 and "version 2 did not pass was_champion" in result.err
    assert result.err.endswith(": it was never the champion, expected one of 1\n")
    assert champion(model) == current_champion


def test_a_former_champion_whose_bytes_have_changed_is_refused(slipway: Call, model: Promotions):
    first, current_champion = promoted(model, 10), promoted(model, 20)
    os.truncate(model.durable / first.tags[FOLDER_TAG] / "weights", 3)
    result = slipway("models", "rollback", MODEL)
    assert result.code == 1 and "version 1 did not pass is_whole" in result.err
    assert "its bytes differ from the committed ones: " in result.err
    assert "weights: found 3 bytes, expected 10" in result.err
    assert champion(model) == current_champion


def test_why_there_is_no_champion_is_said_in_a_sentence(slipway: Call, model: Promotions):
    registered(model, 10)
    weak, awaiting_approval = registered(model, 20), registered(model, 30)
    figures = {"loss": 5.2, "unigram_entropy": 5.0, "checks": {checks.BEATS_UNIGRAMS: {}}}
    model.record(Judgement(MODEL, weak.manifest, "", {checks.BEATS_UNIGRAMS: False}, "a test", figures=figures))
    model.record(
        Judgement(MODEL, awaiting_approval.manifest, "", {checks.BEATS_UNIGRAMS: True}, "a test", approval_hours=1.0)
    )
    lines = slipway("models", "show", MODEL).out.splitlines()
    assert lines[0] == f"{MODEL}: champion none yet"
    assert lines[1].startswith("version 1 is not judged yet: ")
    assert lines[2] == (
        "version 2 did not pass: its loss 5.2 is not below 5, which a guess by frequency alone reaches: train it for "
        "more steps, or with another learning rate"
    )
    assert lines[3].startswith("version 3 passed, and waits: ") and "slipway models approve" in lines[3]
    assert set(json.loads(slipway("models", "show", MODEL, "--json").out)["standings"]) == {"1", "2", "3"}


def test_a_model_of_a_recipe_without_a_version_says_what_it_waits_for(slipway: Call, model: Promotions):
    result = slipway("models", "show", "slipway-tiny-decoder")
    assert result.code == 1
    assert "model slipway-tiny-decoder: no version of it is registered yet; the best checkpoint" in result.err


def test_without_a_former_champion_there_is_nothing_to_roll_back_to(slipway: Call, model: Promotions):
    promoted(model, 10)
    result = slipway("models", "rollback", MODEL)
    assert result.code == 1 and "it has no former champion" in result.err


def test_a_version_that_passed_is_promoted_by_hand(slipway: Call, model: Promotions):
    version = registered(model, 10)
    model.record(Judgement(MODEL, version.manifest, "", {"a test": True}, "a test"))
    result = slipway("models", "promote", MODEL, 1, "--json")
    assert result.code == 0 and json.loads(result.out)["version"] == "1"
    assert champion(model) == version


def test_a_person_freezes_thaws_approves_and_demotes_by_hand(slipway: Call, model: Promotions):
    version = registered(model, 10)
    model.record(Judgement(MODEL, version.manifest, "", {"a test": True}, "a test", approval_hours=1.0))
    assert "a person must approve it: slipway models approve" in slipway("models", "promote", MODEL, 1).err
    result = slipway("models", "approve", "slip", 1, "--why", "the samples are good")
    assert (result.code, result.out) == (0, f"{MODEL}: version 1 is approved\n")
    assert slipway("models", "freeze", "slip", "--why", "it is Friday").out.endswith("by hand: it is Friday\n")
    assert f"model {MODEL} is frozen by " in slipway("models", "promote", MODEL, 1).err
    assert slipway("models", "thaw", "slip").out == f"{MODEL}: it may be promoted again\n"
    assert slipway("models", "promote", MODEL, 1).out == f"{MODEL}: version 1 became champion\n"
    [listed] = json.loads(slipway("models", "list", "--json").out)
    assert (listed["model"], listed["champion"]["number"]) == (MODEL, "1")
    assert slipway("models", "demote", "slip").out == f"{MODEL}: version 1 is the champion no more\n"
    assert champion(model) is None


def test_a_person_goes_on_without_a_promotion_that_is_lost_for_good(slipway: Call, model: Promotions):
    promoted(model, 10), promoted(model, 20)
    for suffix in ("json", "copy"):
        (model.folder / "promotions" / f"000001.{suffix}").unlink()
    result = slipway("models", "show", MODEL)
    assert result.code != 0 and "found no 000001.json" in result.err and "--although-lost" in result.err
    assert slipway("models", "rollback", MODEL, "--although-lost").code != 0, "which one was before is not known"
    result = slipway("models", "rollback", MODEL, 1, "--although-lost", "--why", "no backup has it")
    assert "did not pass" in result.err, "the record that it was the champion is the one that was lost"
    assert "what was decided is not known" in slipway("models", "show", MODEL).out
    assert champion(model) is not None


def test_a_version_without_a_record_has_no_card_and_it_says_how_to_make_one(slipway: Call, model: Promotions):
    registered(model, 10)
    result = slipway("models", "card", MODEL, 1)
    expected = f"slipway: model {MODEL}: version 1 has no record: materialise its candidate\n"
    assert (result.code, result.err) == (1, expected)
    assert f"model {MODEL}: it has no champion: name a version" in slipway("models", "card", MODEL).err


def test_a_version_that_cannot_be_judged_is_not_promoted(slipway: Call, model: Promotions):
    registered(model, 10)
    result = slipway("models", "promote", MODEL, 1)
    assert result.code == 1 and "version 1: it is not a checkpoint of Slipway" in result.err
    assert champion(model) is None


def test_a_version_whose_training_is_gone_is_not_exported(slipway: Call, model: Promotions, tmp_path: Path):
    promoted(model, 10)
    result = slipway("models", "export", MODEL, "--to", tmp_path / "out")
    assert result.code == 1 and f"slipway: model {MODEL}: version 1: found no checkpoint" in result.err
    assert not (tmp_path / "out").exists()


def test_without_a_champion_a_version_is_to_be_named_for_an_export(slipway: Call, model: Promotions, tmp_path: Path):
    registered(model, 10)
    result = slipway("models", "export", MODEL, "--to", tmp_path / "out")
    assert result.code == 1 and f"model {MODEL}: it has no champion; give a VERSION" in result.err


@pytest.mark.parametrize("verb", ["promote", "rollback"])
def test_a_version_that_is_not_there_is_reported_with_those_that_are(slipway: Call, model: Promotions, verb: str):
    promoted(model, 10)
    promoted(model, 20)
    result = slipway("models", verb, MODEL, 9)
    assert result.code == 1
    # On a slow machine a line about the progress comes first.
    assert result.err.endswith(f"slipway: model {MODEL}: found no version 9, expected one of 1, 2\n")


@pytest.mark.parametrize(
    "arguments", [("show",), ("promote", 3), ("rollback",), ("demote",), ("freeze",), ("evaluate", 1)], ids=str
)
def test_a_model_that_is_not_there_is_reported_before_the_registry_is_asked(
    slipway: Call, model: Promotions, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...]
):
    registered(model, 10)

    def opened(*_: object) -> None:
        raise AssertionError("the registry was opened")

    monkeypatch.setattr(Registry, "__init__", opened)
    verb, *rest = arguments
    result = slipway("models", verb, "nope", *rest)
    message = f"slipway: model nope: found none that begins so, expected one of {MODEL}\n"
    assert (result.code, result.err) == (1, message)


def test_a_rollback_without_a_former_champion_is_reported_before_the_registry_is_asked(
    slipway: Call, model: Promotions, monkeypatch: pytest.MonkeyPatch
):
    registered(model, 10)
    monkeypatch.delattr(Registry, "__init__")
    result = slipway("models", "rollback", MODEL)
    assert (result.code, result.err) == (1, f"slipway: model {MODEL}: it has no former champion\n")


@pytest.mark.nightly
def test_a_job_of_the_launcher_lets_a_version_answer_tasks_and_each_example_is_kept(slipway: Call, model: Promotions):
    version = registered(model, 10)
    served_version = exported(model.durable, 1)
    target = ServingRecords(model.durable).export(MODEL, version.manifest)
    target.parent.mkdir(parents=True)
    (model.durable / served_version.folder).rename(target)
    result = slipway("models", "evaluate", MODEL, "1", "--task", "adding", "--examples", "2", "--json")
    assert result.code == 0, result.err
    [task_result] = json.loads(result.out)
    assert (task_result["task"], task_result["examples"], set(task_result["metrics"])) == ("adding", 2, {"exact_match"})
    assert (model.durable / answers.FOLDER / version.manifest / f"{task_result['table']}.parquet").exists()
    jobs = [job_folder.name for job_folder in (model.durable / "short-jobs").iterdir()]
    assert len(jobs) == 1 and jobs[0].startswith("generate-")
    unknown = slipway("models", "evaluate", MODEL, "1", "--task", "no_such_task")
    assert unknown.code == 1 and "no_such_task" in unknown.err
