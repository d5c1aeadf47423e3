"""A person pauses and deletes trainings in the launchpad: chooses one, types what is asked, and reads what follows.

The webserver is Dagster's own, over trainings that were written by the platform's own doors. What a person launches
waits in the queue, and is executed when the test says so.
"""

import re
from collections.abc import Iterator

import dagster as dg
import pytest
from playwright.sync_api import expect

from slipway.assets import keys
from slipway.resources.home import Home
from slipway.resources.trainings.store import Trainings, TrainingStore, WorkQueue
from tests.browser.window import Window
from tests.cli import homes
from tests.drills import small_recipes
from tests.operations import webserver
from tests.operations.webserver import Webserver

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
ALONE, PAIR = small_recipes.ALONE, small_recipes.PAIR
PATIENCE = 300_000
"""Milliseconds that a page may take, which is much more than it does."""


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


@pytest.fixture(scope="module")
def url(server: Webserver) -> Iterator[str]:
    with webserver.listening(server) as address:
        yield address


def test_a_person_pauses_a_training_and_reads_what_follows(
    url: str, window: Window, server: Webserver, instance: dg.DagsterInstance, home: Home
):
    store = _with_partition(instance, homes.running(home, ALONE, 25))
    ops_config = "{alone_pause_training: {config: {why: the nodes are needed}}}"
    run = _launched(window, url, "alone_pause", ops_config, store.id)
    result = server.execute(run)["result"]
    desired = store.desired()
    assert desired is not None and (desired.want, desired.why) == ("stop", "paused: the nodes are needed")
    expect(window.page.get_by_text(result).first).to_be_visible(timeout=PATIENCE)


def test_a_person_reads_what_deleting_a_training_removes_before_anything_goes(
    url: str, window: Window, server: Webserver, instance: dg.DagsterInstance, home: Home
):
    store = _with_partition(instance, homes.ended(home, PAIR, "failed", "it diverged", 50, 75))
    Trainings(store.folder.parent).close(store.id, WorkQueue.CHECKPOINTS)  # nothing waits for an evaluation
    run = _launched(window, url, "pair_delete", "", store.id)
    server.execute(run)
    expect(window.page.get_by_text("checkpoints of steps 50, 75 go").first).to_be_visible(timeout=PATIENCE)
    assert not store.read().let_go


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("drill_alone_promote", "it has no candidate yet"),
        ("drill_alone_rollback", "it has no former champion"),
        ("drill_alone_serve", "there is no champion"),
        ("drill_alone_freeze", "frozen by"),
        ("alone_start", "to make it: slipway data build"),
    ],
)
def test_a_person_launches_a_dialog_as_it_opens_and_reads_what_follows(
    url: str, window: Window, server: Webserver, job: str, message: str
):
    run = _launched(window, url, job, "")
    server.execute(run)
    expect(window.page.get_by_text(message).first).to_be_visible(timeout=PATIENCE)


@pytest.mark.parametrize("verb", ["export", "replay"])
def test_a_person_chooses_a_checkpoint_and_reads_in_one_sentence_why_it_cannot_be_used(
    url: str, window: Window, server: Webserver, instance: dg.DagsterInstance, verb: str
):
    chosen = keys.checkpoint_partition("alone-00000000000a", 35)
    instance.add_dynamic_partitions(keys.checkpoint_partitions(ALONE).name or "", [chosen])
    failed = server.execute(_launched(window, url, f"alone_{verb}", "", chosen))
    expect(window.page.get_by_text(failed["failure"][:80]).first).to_be_visible(timeout=PATIENCE)
    assert "Traceback" not in window.text() and ".py" not in window.text()


def test_a_person_stops_a_training_and_lets_it_go_on(
    url: str, window: Window, server: Webserver, instance: dg.DagsterInstance, home: Home
):
    store = _with_partition(instance, homes.running(home, ALONE, 30, snapshot="2" * 64))
    for job, want in (("alone_stop", "stop"), ("alone_resume", "run")):
        result = server.execute(_launched(window, url, job, "", store.id))["result"]
        desired = store.desired()
        assert desired is not None and desired.want == want
        expect(window.page.get_by_text(result).first).to_be_visible(timeout=PATIENCE)


def test_a_field_that_is_none_is_refused_before_a_run_begins(url: str, window: Window):
    _typed(window, url, "alone_pause", "{alone_pause_training: {config: {burn: true}}}")
    expect(window.page.get_by_text(re.compile("unexpected config entry")).first).to_be_visible(timeout=PATIENCE)
    expect(window.page.get_by_role("button", name="Launch Run")).to_be_disabled(timeout=PATIENCE)


def _with_partition(instance: dg.DagsterInstance, store: TrainingStore) -> TrainingStore:
    """The training, as a partition that the launchpad offers."""
    names = keys.training_partitions(store.specification().recipe).name or ""
    instance.add_dynamic_partitions(names, [store.id])
    return store


def _typed(window: Window, url: str, job: str, ops: str, partition: str = "") -> None:
    """Open a job's launchpad, choose a partition, and write the configuration of its ops; empty: as it opens."""
    page = window.page
    window.open(f"{url}/locations/slipway/jobs/{job}/playground")
    editor = page.locator(".CodeMirror").first
    expect(editor).to_contain_text("config:", timeout=PATIENCE)  # what it opens with
    if partition:
        page.get_by_placeholder("Partition").click(timeout=PATIENCE)
        page.get_by_text(partition, exact=True).last.click(timeout=PATIENCE)
        expect(page.get_by_text(f"partition: {partition}").first).to_be_visible(timeout=PATIENCE)
    if not ops:
        return
    editor.click(timeout=PATIENCE)
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(f"ops: {ops}")


def _launched(window: Window, url: str, job: str, ops: str, partition: str = "") -> str:
    """Launch a run as a person does; returns its id, which is in the address of the page that follows."""
    _typed(window, url, job, ops, partition)
    window.page.get_by_role("button", name="Launch Run").click(timeout=PATIENCE)
    window.page.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}"), timeout=PATIENCE)
    match = re.search(r"/runs/([0-9a-f-]{36})", window.page.url)
    assert match is not None
    return match[1]
