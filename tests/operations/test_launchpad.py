"""What a person does in the UI's launchpad and with several partitions at once, asked as the webserver is asked."""

import re
from collections.abc import Iterator

import dagster as dg
import pytest

from slipway.assets import keys
from slipway.operations import notices
from slipway.resources.home import Home
from slipway.resources.trainings.store import Trainings, WorkQueue
from tests.cli import homes
from tests.drills import small_recipes
from tests.operations import webserver
from tests.operations.webserver import Webserver

ALONE, PAIR = small_recipes.ALONE, small_recipes.PAIR
PATHS = {"durable", "nvme", "backup", "origins", "folder", "uri", "uri_file", "target", "settings"}
"""Fields that would move a folder of the platform for one run."""
TAKES_WORDS = {"set", "approve", "refuse", "search_steer", "node_set", "network_bisect", "training_logs"}
"""Jobs, without the name of a training's recipe, that need a choice or words of which only a person knows."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return homes.home(tmp_path_factory.mktemp("launchpad") / "home")


@pytest.fixture(scope="module")
def instance(home: Home) -> Iterator[dg.DagsterInstance]:
    (home.root.parent / "dagster").mkdir()
    with dg.instance_for_test(webserver.OVERRIDES, temp_dir=str(home.root.parent / "dagster")) as dagster_instance:
        yield dagster_instance


@pytest.fixture(scope="module")
def server(instance: dg.DagsterInstance, home: Home) -> Iterator[Webserver]:
    folder = home.root.parent
    with webserver.served(instance, folder, small_recipes.write(folder, 40), home.root) as webserver_process:
        yield webserver_process


def known(instance: dg.DagsterInstance, *ids: str) -> list[str]:
    """The ids as partitions of trainings."""
    instance.add_dynamic_partitions(keys.training_partitions(ALONE).name or "", list(ids))
    return list(ids)


def test_several_trainings_are_launched_together(server: Webserver, instance: dg.DagsterInstance):
    instance.add_dynamic_partitions(keys.NODES.name or "", ["node-0", "node-1"])
    both = known(instance, "alone-000000000001", "alone-000000000002")
    training = keys.key(ALONE, "training")
    assert server.materialize_each(training, both) == ["LaunchRunSuccess", "LaunchRunSuccess"]
    backfill = instance.get_backfill(server.backfill([training], both))
    assert backfill is not None and backfill.asset_selection == [training]


def test_no_launchpad_lets_a_person_move_a_folder_of_the_platform(server: Webserver):
    for job in server.jobs():
        schema = server.schema(job)
        assert PATHS & schema["fields"] == set(), job
        assert "durable" not in (schema["text"] or ""), job


def test_the_launchpad_offers_what_there_is(server: Webserver):
    assert server.schema("alone_export")["choices"]["WeightType"] == ["bf16", "fp32"]
    assert {f"script_{verb}" for verb in ("start", "stop", "pause", "resume", "delete")} <= set(server.jobs())
    models = {f"drill_{name}_{verb}" for name in ("alone", "pair") for verb in ("promote", "rollback", "demote")}
    assert models <= set(server.jobs())


def test_the_dialog_of_an_action_can_be_launched_as_it_opens(server: Webserver, instance: dg.DagsterInstance):
    known(instance, "alone-000000000003")
    verbs = ("promote", "rollback", "demote", "freeze", "thaw", "serve")
    for job in (f"drill_alone_{verb}" for verb in verbs):
        assert server.refusals(job) == [], job
    for job in (f"alone_{verb}" for verb in ("stop", "pause", "resume", "delete")):
        assert server.refusals(job, "alone-000000000003") == [], job


def test_only_a_job_that_needs_a_choice_or_words_of_a_person_opens_with_a_missing_field(server: Webserver):
    red = {job for job in server.jobs() if server.refusals(job)}
    assert {re.sub("^(alone|pair|script|drill_alone|drill_pair)_", "", job) for job in red} == TAKES_WORDS


def test_a_version_that_is_not_there_is_refused_with_those_that_are(server: Webserver):
    run = server.launch("drill_alone_promote", {"drill_alone_promote_model": {"version": 7}})
    assert server.execute(run)["failure"] == "model drill-alone: field version: found 7, and no version is registered"
    newest = server.execute(server.launch("drill_alone_promote"))
    assert newest["failure"] == "model drill-alone: it has no candidate yet: none of its checkpoints is registered"


def test_a_training_is_paused_and_resumed_and_the_run_says_what_follows(
    server: Webserver, instance: dg.DagsterInstance, home: Home
):
    store = homes.running(home, ALONE, 25)
    known(instance, store.id)
    paused = server.launch("alone_pause", {"alone_pause_training": {"why": "the nodes are needed"}}, store.id)
    assert "its job saves a checkpoint" in server.execute(paused)["result"]
    desired = store.desired()
    assert desired is not None and (desired.want, desired.why) == ("stop", "paused: the nodes are needed")
    twice = server.execute(server.again(paused))
    message = f"training {store.id}: it is stopped, or asked to stop, already: there is nothing to stop"
    assert twice["failure"] == message
    resumed = server.launch("alone_resume", partition=store.id)
    assert "from its newest checkpoint" in server.execute(resumed)["result"]
    desired = store.desired()
    assert desired is not None and desired.want == "run"


@pytest.mark.parametrize(
    ("job", "partition", "message"),
    [
        ("alone_pause", None, "partition: found none, expected a training: choose one in the field above"),
        ("alone_replay", None, "partition: found none, expected a checkpoint: choose one in the field above"),
        ("node_set", None, "partition: found none, expected a node: choose one in the field above"),
        ("alone_export", "nope@1", "partition 'nope@1': expected <training>.<step>, one of the checkpoints"),
        ("alone_stop", "alone-0123456789ab", "training alone-0123456789ab: it was never started: there is nothing"),
    ],
)
def test_a_dialog_about_nothing_or_about_what_there_is_not_says_so_in_one_sentence(
    server: Webserver, job: str, partition: str | None, message: str
):
    config = {"set_node": {"choice": "repair", "why": "a fan"}} if job == "node_set" else None
    failed = server.execute(server.launch(job, config, partition))
    assert failed["failure"].startswith(message) and failed["error"].stack == []


def test_a_test_of_notifications_where_nobody_is_told_says_what_is_missing(server: Webserver):
    failed = server.execute(server.launch("notifications_test"))
    assert failed["failure"] == notices.NOBODY and failed["error"].stack == []


def test_a_training_is_not_started_without_a_snapshot_and_the_run_says_how_to_make_one(server: Webserver):
    failed = server.execute(server.launch("alone_start", {"alone_start_training": {}}))
    command = f"slipway data build {small_recipes.DATASET}"
    assert failed["failure"] == f"training alone: dataset texts has no snapshot yet; to make it: {command}"


def test_a_training_that_has_ended_is_deleted_once_a_person_has_read_what_goes(
    server: Webserver, instance: dg.DagsterInstance, home: Home
):
    store = homes.ended(home, PAIR, "failed", "it diverged", 50, 75)
    Trainings(store.folder.parent).close(store.id, WorkQueue.CHECKPOINTS)  # nothing waits for an evaluation
    instance.add_dynamic_partitions(keys.training_partitions(PAIR).name or "", [store.id])
    result = server.execute(server.launch("pair_delete", partition=store.id))
    assert "nothing is removed yet" in result["result"] and "checkpoints of steps 50, 75 go" in result["result"]
    assert not store.read().let_go
    config = {"pair_delete_training": {"remove": True, "why": "a wrong rate"}}
    done = server.execute(server.launch("pair_delete", config, store.id))
    assert "the next retention removes it" in done["result"] and store.read().let_go
    server.execute(server.launch("pair_resume", partition=store.id))
    assert not store.read().let_go
    refused = server.execute(server.launch("pair_delete", partition=store.id))
    assert refused["failure"].endswith("found it under way, expected one that has ended: stop it first")


@pytest.mark.parametrize("verb", ["export", "replay", "branch"])
def test_a_checkpoint_that_is_not_there_is_refused_in_one_sentence(
    server: Webserver, instance: dg.DagsterInstance, verb: str
):
    chosen = keys.checkpoint_partition("alone-00000000000a", 35)
    instance.add_dynamic_partitions(keys.checkpoint_partitions(ALONE).name or "", [chosen])
    assert server.refusals(f"alone_{verb}", chosen) == []
    failed = server.execute(server.launch(f"alone_{verb}", partition=chosen))
    assert failed.get("failure"), failed
    assert failed["error"].stack == [] and "\n" not in failed["failure"].strip()
