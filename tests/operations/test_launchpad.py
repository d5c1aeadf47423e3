"""What a person does in the UI's launchpad and with several partitions at once, asked as the webserver is asked."""

from collections.abc import Iterator

import dagster as dg
import pytest

from assets import keys
from resources.home import Home
from resources.trainings.duties import Duty
from resources.trainings.store import Trainings
from tests.cli import homes
from tests.drills import small_recipes
from tests.operations import webserver
from tests.operations.webserver import Webserver

ALONE, PAIR = small_recipes.ALONE, small_recipes.PAIR
PATHS = {"durable", "nvme", "backup", "origins", "folder", "uri", "uri_file", "target", "settings"}
"""Fields that would move a folder of the platform for one run."""
OPERATE, OPERATE_PAIR = "alone_operate_training", "pair_operate_training"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return homes.home(tmp_path_factory.mktemp("launchpad") / "home")


@pytest.fixture(scope="module")
def instance(home: Home) -> Iterator[dg.DagsterInstance]:
    (home.root.parent / "dagster").mkdir()
    with dg.instance_for_test(webserver.OVERRIDES, temp_dir=str(home.root.parent / "dagster")) as made:
        yield made


@pytest.fixture(scope="module")
def server(instance: dg.DagsterInstance, home: Home) -> Iterator[Webserver]:
    folder = home.root.parent
    with webserver.served(instance, folder, small_recipes.write(folder, 40), home.root) as found:
        yield found


def known(instance: dg.DagsterInstance, *ids: str) -> list[str]:
    """The ids as partitions of trainings."""
    instance.add_dynamic_partitions(keys.training_partitions(ALONE).name or "", list(ids))
    return list(ids)


def test_several_trainings_are_launched_together(server: Webserver, instance: dg.DagsterInstance):
    instance.add_dynamic_partitions(keys.NODES.name or "", ["node-0", "node-1"])
    both = known(instance, "alone-000000000001", "alone-000000000002")
    training = keys.key(ALONE, "training")
    assert server.materialise_each(training, both) == ["LaunchRunSuccess", "LaunchRunSuccess"]
    backfill = instance.get_backfill(server.backfill([training], both))
    assert backfill is not None and backfill.asset_selection == [training]


def test_no_launchpad_lets_a_person_move_a_folder_of_the_platform(server: Webserver):
    for job in server.jobs():
        shown = server.schema(job)
        assert PATHS & shown["fields"] == set(), job
        assert "durable" not in (shown["text"] or ""), job


def test_the_launchpad_offers_what_there_is(server: Webserver):
    assert server.schema("model_operation")["choices"]["drill-alone or drill-pair"] == ["drill-alone", "drill-pair"]
    requests = server.schema("alone_operation")["choices"]["TrainingRequestKind"]
    assert requests == ["start", "stop", "pause", "resume", "delete"]
    assert server.schema("alone_export")["choices"]["WeightType"] == ["bf16", "fp32"]
    assert {"script_start", "script_operation"} <= set(server.jobs())


def test_a_training_is_paused_and_resumed_and_the_run_says_what_follows(
    server: Webserver, instance: dg.DagsterInstance, home: Home
):
    store = homes.running(home, ALONE, 25)
    known(instance, store.id)
    paused = server.launch(
        "alone_operation", {OPERATE: {"operation": "pause", "why": "the nodes are needed"}}, store.id
    )
    assert "its job saves a checkpoint" in server.execute(paused)["told"]
    desired = store.desired()
    assert desired is not None and (desired.want, desired.why) == ("stop", "paused: the nodes are needed")
    twice = server.execute(server.again(paused))
    assert twice["failure"] == f"training {store.id}: found one that is not wanted, expected one that runs or waits"
    resumed = server.launch("alone_operation", {OPERATE: {"operation": "resume"}}, store.id)
    assert "from its newest checkpoint" in server.execute(resumed)["told"]
    desired = store.desired()
    assert desired is not None and desired.want == "run"


def test_a_training_is_not_started_without_a_snapshot_and_the_run_says_how_to_make_one(server: Webserver):
    failed = server.execute(server.launch("alone_start", {"alone_start_training": {}}))
    made = f"slipway data build {small_recipes.DATASET}"
    assert failed["failure"] == f"training alone: dataset texts has no snapshot yet; to make it: {made}"


def test_a_training_that_has_ended_is_deleted_once_a_person_has_read_what_goes(
    server: Webserver, instance: dg.DagsterInstance, home: Home
):
    store = homes.ended(home, PAIR, "failed", "it diverged", 50, 75)
    Trainings(store.folder.parent).close(store.id, Duty.CHECKPOINTS)  # nothing waits for an evaluation
    instance.add_dynamic_partitions(keys.training_partitions(PAIR).name or "", [store.id])
    shown = server.execute(server.launch("pair_operation", {OPERATE_PAIR: {"operation": "delete"}}, store.id))
    assert "nothing is removed yet" in shown["told"] and "checkpoints of steps 50, 75 go" in shown["told"]
    assert not store.read().let_go
    asked = {OPERATE_PAIR: {"operation": "delete", "remove": True, "why": "a wrong rate"}}
    done = server.execute(server.launch("pair_operation", asked, store.id))
    assert "the next retention removes it" in done["told"] and store.read().let_go
    server.execute(server.launch("pair_operation", {OPERATE_PAIR: {"operation": "resume"}}, store.id))
    assert not store.read().let_go
    refused = server.execute(server.launch("pair_operation", {OPERATE_PAIR: {"operation": "delete"}}, store.id))
    assert refused["failure"].endswith("found it under way, expected one that has ended: stop it first")
