"""Trainings by the command, on a home as trainings leave it."""

import json
from pathlib import Path

import pytest

from slipway.resources.home import Home
from tests.cli import homes
from tests.cli.conftest import Call


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """The home of the command."""
    return homes.home(tmp_path / "home")


def test_the_list_has_what_was_wanted_and_with_all_what_is_offered_too(slipway: Call, home: Home):
    done = homes.ended(home, "tiny", "succeeded", "all steps done", 50, 100)
    homes.offered(home, "other")
    [listed] = json.loads(slipway("ls", "--json").out)
    assert (listed["id"], listed["state"], listed["step"], listed["steps"], listed["checkpoint"]) == (
        done.id,
        "succeeded",
        100,
        homes.STEPS,
        100,
    )
    states = {row["id"].partition("-")[0]: row["state"] for row in json.loads(slipway("ls", "--all", "--json").out)}
    assert states == {"tiny": "succeeded", "other": "offered"}
    assert slipway("ls").out.splitlines()[1].split()[:4] == [done.id, "succeeded", "100/100", "100"]


def test_a_training_that_cannot_be_read_is_listed_with_its_fault_beside_the_others(slipway: Call, home: Home):
    homes.ended(home, "tiny", "succeeded", "all steps done", 100)
    broken = homes.running(home, "broken", 50)
    for path in (broken.folder / "desired").iterdir():
        path.write_text("{")
    listed = {row["id"]: row for row in json.loads(slipway("ls", "--json").out)}
    assert sorted(row["state"] for row in listed.values()) == ["succeeded", "unreadable"]
    assert listed[broken.id]["why"]


def test_a_training_that_cannot_be_read_keeps_no_verb_from_the_others(slipway: Call, home: Home):
    store = homes.running(home, "tiny", 50)
    broken = homes.running(home, "tiny-broken", 50)
    for path in (*(broken.folder / "desired").iterdir(), *(broken.folder / "claims").iterdir()):
        path.write_text("{")
    assert slipway("checkpoints", "list", "tin").out.count(f"{store.id}@50") == 1
    assert slipway("stop", "tin").out.startswith(f"{store.id} is stopped at step 50")
    assert slipway("incidents", "--json").out == "[]\n"


def test_an_empty_home_says_what_to_do(slipway: Call):
    assert json.loads(slipway("ls", "--json").out) == []
    assert slipway("ls").err == "no training has been wanted yet; to start one: slipway run RECIPE\n"


def test_a_training_is_shown_by_the_beginning_of_its_id(slipway: Call, home: Home):
    store = homes.ended(home, "tiny", "failed", "out of memory", 50)
    training = json.loads(slipway("show", "ti", "--json").out)
    assert (training["id"], training["recipe"], training["why"]) == (store.id, "tiny", "out of memory")
    assert [checkpoint["step"] for checkpoint in training["checkpoints"]] == [50]
    assert [incident["cause"] for incident in training["incidents"]] == ["out of memory"]
    assert "out of memory" in slipway("show", "ti").out


def test_a_beginning_that_two_trainings_have_names_both(slipway: Call, home: Home):
    first, second = homes.offered(home, "tiny-one"), homes.offered(home, "tiny-two")
    assert slipway("show", "tiny").err == (
        f"slipway: training tiny: found 2 that begin so, expected one of {first.id}, {second.id}\n"
    )


def test_stop_finds_the_one_training_that_is_wanted_and_resume_the_one_that_is_not(slipway: Call, home: Home):
    homes.ended(home, "tiny", "succeeded", "all steps done", 100)
    store = homes.running(home, "tiny-too", 50)
    result = slipway("stop", "tiny", "--why", "enough")
    assert result.out == f"{store.id} is stopped at step 50; to go on: slipway resume {store.id}\n"
    wish, ended = store.desired(), store.exit()
    assert wish is not None and (wish.want, wish.why) == ("stop", "enough")
    assert ended is not None and ended.outcome == "stopped"


def test_a_pause_is_on_record(slipway: Call, home: Home):
    store = homes.running(home, "tiny", 50)
    assert slipway("pause", "tiny").code == 0
    wish = store.desired()
    assert wish is not None and (wish.want, wish.why) == ("stop", "paused")


def test_a_training_that_has_succeeded_is_not_resumed(slipway: Call, home: Home):
    store = homes.ended(home, "tiny", "succeeded", "all steps done", 100)
    assert slipway("resume", store.id).err == (
        f"slipway: training {store.id}: it has succeeded at step 100: there is nothing to resume\n"
    )


def test_all_incidents_are_listed_with_their_cause(slipway: Call, home: Home):
    store = homes.ended(home, "tiny", "failed", "node-0 died", 50)
    [incident] = json.loads(slipway("incidents", "--json").out)
    assert (incident["training"], incident["cause"], incident["nodes"]) == (store.id, "node-0 died", ["node-0"])
    assert "node-0 died" in slipway("incidents").out


def test_the_incidents_of_one_training_are_listed_with_what_is_to_be_done(slipway: Call, home: Home):
    store = homes.ended(home, "tiny", "failed", "node-0 died", 50)
    homes.ended(home, "other", "failed", "node-1 died", 50)
    listed = slipway("incidents", "--training", "tiny").out
    assert f"{store.id}.000001.0000" in listed and "node-1 died" not in listed
    [incident] = json.loads(slipway("incidents", "--training", "tiny", "--json").out)
    assert (incident["id"], incident["step"], incident["state"]) == ("000001.0000", 50, "waits for a person")


def test_an_incident_shows_its_post_mortem(slipway: Call, home: Home):
    store = homes.ended(home, "tiny", "failed", "node-0 died", 50)
    page = slipway("incidents", "show", f"{store.id}.000001").out
    assert page.startswith(f"# Incident {store.id}.000001.0000\n\nnode-0 died, after step 50; no step followed\n")
    assert "| what to do | read the evidence" in page
    result = slipway("incidents", "show", "nonsense")
    assert result.code == 1 and f"expected one of {store.id}.000001.0000" in result.err


def test_what_was_kept_of_a_failed_start_stands_for_its_logs(slipway: Call, home: Home):
    store = homes.ended(home, "tiny", "failed", "node-0 died", 50)
    (store.folder / "tails").mkdir()
    (store.folder / "tails" / "000001.json").write_text(json.dumps({"node-0": "last words", "node-1": "others"}))
    assert slipway("logs", "tiny", "--node", "node-0").out.endswith(" i1 node-0 r- | last words\n")
    lines = [json.loads(line) for line in slipway("logs", "tiny", "--json").out.splitlines()]
    assert [(line["node"], line["incarnation"], line["text"]) for line in lines] == [
        ("node-0", 1, "last words"),
        ("node-1", 1, "others"),
    ]
    assert len(slipway("logs", "tiny", "--grep", "words").out.splitlines()) == 1
    silent = slipway("logs", "tiny", "--rank", "3")
    assert silent.out == "" and silent.err.endswith("no line of its logs is as it was asked for\n")
    assert "found incarnation 2, expected one from 1 to 1" in slipway("logs", "tiny", "--incarnation", "2").err
    assert "node node-9: found no log of it" in slipway("logs", "tiny", "--node", "node-9").err
    assert "| last words" in slipway("logs", "tiny", "--follow").out, "it ends, as the training has ended"


def test_the_metrics_of_the_platform_are_printed_once(slipway: Call, home: Home):
    homes.ended(home, "tiny", "failed", "node-0 died", 50)
    result = slipway("metrics", "show")
    assert result.code == 0, result.err
    assert 'slipway_trainings{state="failed"} 1.0' in result.out.splitlines()


def test_watching_one_that_is_over_tells_how_it_went(slipway: Call, home: Home):
    store = homes.ended(home, "tiny", "succeeded", "all steps done", 50, 100)
    lines = slipway("watch", "tiny").out.splitlines()
    assert [line.split(" ", 1)[1] for line in lines if " step " in line][:2] == [
        "step 50: loss 2.5000, 0.100 s",
        "step 100: loss 2.5000, 0.100 s",
    ]
    assert lines[-1] == f"{store.id} succeeded at step 100"


def test_watching_one_that_failed_is_a_failure(slipway: Call, home: Home):
    store = homes.ended(home, "tiny", "failed", "out of memory", 50)
    result = slipway("watch", "tiny")
    assert (result.code, result.err) == (1, f"slipway: {store.id} failed: out of memory\n")


def test_a_checkpoint_whose_record_is_damaged_is_named_beside_the_others(slipway: Call, home: Home):
    store = homes.running(home, "tiny", 50, 100)
    path = store.folder / "commits" / f"{store.commits()[0].name}.json"
    path.write_bytes(path.read_bytes()[:40])
    listed = slipway("checkpoints", "list", "tiny")
    assert f"{store.id}@100" in listed.out and f"{store.id}@50" not in listed.out
    assert f"{store.id}@50: its record is damaged, and it does not count: {path}" in listed.err


def test_checkpoints_are_listed_with_the_tiers_that_hold_them(slipway: Call, home: Home):
    store = homes.running(home, "tiny", 50, 100)
    listed = json.loads(slipway("checkpoints", "list", "tiny", "--json").out)
    assert [(checkpoint["step"], checkpoint["tiers"]) for checkpoint in listed] == [
        (50, ["durable"]),
        (100, ["durable"]),
    ]
    assert f"{store.id}@50" in slipway("checkpoints", "list", "tiny").out


def test_a_checkpoint_is_verified_to_the_last_byte_and_a_damaged_one_is_named(slipway: Call, home: Home):
    store = homes.running(home, "tiny", 50, 100)
    verification = json.loads(slipway("checkpoints", "verify", "tiny@50", "--json").out)
    assert (verification["step"], verification["files"], verification["bytes"]) == (50, 2, 52)
    path = home.durable / store.commits()[0].folder / "weights"
    path.write_bytes(b"\1" + path.read_bytes()[1:])
    result = slipway("checkpoints", "verify", "tiny@50")
    assert result.code == 1 and result.err.startswith(f"slipway: {store.commits()[0].folder}/weights: found BLAKE3 ")
    assert [commit.step for commit in store.commits()] == [50, 100]
    assert slipway("checkpoints", "verify", "tiny").out.startswith(f"{store.id}@100 is whole on the durable tier")


def test_a_step_without_a_checkpoint_is_named_beside_those_with(slipway: Call, home: Home):
    store = homes.running(home, "tiny", 50, 100)
    assert slipway("checkpoints", "verify", "tiny@70").err == (
        f"slipway: training {store.id}: found no checkpoint of step 70, expected one of 50, 100\n"
    )


def test_a_killed_node_is_lost_and_the_list_says_so(slipway: Call, home: Home):
    assert slipway("nodes", "kill", "node-1").out == "node node-1 is lost; killed: nothing was running on it\n"
    listed = {node["name"]: node["ready"] for node in json.loads(slipway("nodes", "list", "--json").out)}
    assert listed == {"node-0": True, "node-1": False}
    assert "killed by hand" in slipway("nodes", "list").out


def test_lists_of_what_there_is_none_of_are_empty_json(slipway: Call):
    for noun in ("sweeps", "models", "data"):
        assert json.loads(slipway(noun, "list", "--json").out) == []


def test_a_training_is_shown_with_what_its_time_was_spent_on(slipway: Call, home: Home):
    store = homes.ended(home, "tiny", "failed", "a test", 50)
    rows = {line.partition("  ")[0]: line for line in slipway("show", store.id).out.splitlines()}
    assert {"time", "ETTR (Meta)", "ETTR (ByteDance)", "goodput", "lost"} <= set(rows)
    account = json.loads(slipway("show", store.id, "--json").out)["account"]
    assert sum(account["seconds"].values()) == pytest.approx(account["wall_seconds"], rel=1e-3)


def test_sql_over_the_accounts_is_a_table_or_json(slipway: Call, home: Home):
    store = homes.ended(home, "tiny", "failed", "a test", 50)
    query = "SELECT training, count(*) AS parts FROM lost GROUP BY training"
    assert slipway("ls", "--sql", query).out.splitlines()[1].split()[0] == store.id
    assert [row["training"] for row in json.loads(slipway("ls", "--sql", query, "--json").out)] == [store.id]
    cut = slipway("ls", "--sql", "SELECT range FROM range(1000000000000)", "--rows", "2", "--json")
    assert (json.loads(cut.out), cut.err) == (
        [{"range": 0}, {"range": 1}],
        "only the first 2 rows of the answer; for more: --rows\n",
    )
    assert "slipway: query 'SELECT nothing': " in slipway("ls", "--sql", "SELECT nothing").err


def test_money_is_known_where_the_home_has_prices(slipway: Call, home: Home):
    homes.ended(home, "tiny", "failed", "a test", 50)
    query = ("ls", "--sql", "SELECT sum(money) IS NULL AS unknown FROM cost")
    assert f"money is not known: {home.root / 'costs.yaml'} has no prices" in slipway(*query).err
    (home.root / "costs.yaml").write_text("slipway: costs/1\nprices: {on_demand: 2.0, spot: 0.5}\n")
    result = slipway(*query, "--json")
    assert json.loads(result.out) == [{"unknown": False}] and "money is not known" not in result.err
