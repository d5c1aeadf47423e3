"""The demo from nothing to a champion, twice; then with a changed recipe, interrupted and gone on with.

One home tells the whole story, as each part takes a minute: `first`, `again`, `interrupted`, `resumed`.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import InstigatorStatus
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion

from slipway.assets.sweeps.store import sweeps
from slipway.deploy.embedded import jobs
from slipway.deploy.embedded.instance import open_storage
from slipway.resources.mlflow.registry import MANIFEST_TAG
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.base import processes
from slipway.trainer.record import ledger
from tests.embedded.slipway import ENDING_SECONDS, TEXTS, TRAINING, Slipway, interrupt, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STEPS = 600
"""Of a training that is still at work when a test has seen its thirtieth step."""
TRIALS = 3


@dataclass(frozen=True)
class Ended:
    """A demo that has ended, and the state it left."""

    code: int
    output: str
    errors: str
    survivors: list[str]
    """The command lines of processes that were still there."""
    logs: dict[str, int]
    """Bytes in the logs of Dagster's processes."""
    manifests: dict[Path, int]
    """When each snapshot manifest was written."""


@pytest.fixture(scope="module")
def slipway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slipway]:
    """A folder with blanks and letters beyond ASCII, as people have them."""
    own = Slipway(tmp_path_factory.mktemp("Läufe des Hauses"))
    yield own
    assert own.end_all() == [], "processes left behind"


@pytest.fixture(scope="module")
def first(slipway: Slipway) -> Ended:
    """From nothing."""
    return demo(slipway)


@pytest.fixture(scope="module")
def version(slipway: Slipway, first: Ended) -> ModelVersion:
    """What the first run registered."""
    return MlflowClient(slipway.home.tracking_uri).get_model_version_by_alias("small-decoder", "champion")


@pytest.fixture(scope="module")
def again(slipway: Slipway, version: ModelVersion) -> Ended:
    """The same once more."""
    return demo(slipway)


@pytest.fixture(scope="module")
def interrupted(slipway: Slipway, again: Ended) -> Ended:
    """With a longer training, and Ctrl-C in the middle of it."""
    slipway.edit(TRAINING, "steps: 60", f"steps: {STEPS}")
    slipway.edit(TRAINING, "every: 20", f"every: {STEPS // 2}")
    slipway.edit(TRAINING, "sequences: 4", "sequences: 32")
    process = slipway.start("demo")
    until(lambda: any(steps(store) >= 30 for store in changed(slipway)), process)
    [rank] = slipway.ranks()
    return ended(slipway, *interrupt(process, rank))


@pytest.fixture(scope="module")
def stopped(slipway: Slipway, interrupted: Ended) -> tuple[int, int]:
    """(incarnation, step) at which the interruption stopped the training."""
    (store,) = changed(slipway)
    last = store.commits()[-1]
    return last.token.incarnation, last.step


@pytest.fixture(scope="module")
def resumed(slipway: Slipway, stopped: tuple[int, int]) -> Ended:
    """The run after the interruption."""
    return demo(slipway)


def test_it_ends_with_a_champion(first: Ended):
    assert (first.code, first.errors) == (0, ""), first.output[-2000:]
    assert "champion: small-decoder version 1" in first.output


def test_its_table_names_all_that_was_made(slipway: Slipway, first: Ended):
    (store,) = started(slipway)
    rows = table(first.output)
    assert rows["snapshot"] == f"{store.specification().snapshot[:16]}  {TEXTS} documents of small-texts"
    assert rows["trials"].startswith(f"{TRIALS}, ")
    assert rows["training"] == f"{store.id}, 1 incarnation"
    (at_first, loss), *_, (at_last, last) = ledger.loss_curve(store.events())
    assert rows["loss"] == f"{loss:.3f} at step {at_first} to {last:.3f} at step {at_last}"
    assert last < loss
    assert [commit.step for commit in store.commits()] == [20, 40, 60]
    for commit in store.commits():
        figures = rows[f"checkpoint {commit.step}"]
        assert "bits per byte" in figures and figures.endswith(f"manifest {commit.manifest[:12]}")
    assert rows["champion"] == "small-decoder version 1"
    assert rows["its files"].startswith(f"{slipway.home.durable}/checkpoints/{store.id}/")
    assert (slipway.home.root / "small-decoder-loss.png").read_bytes().startswith(b"\x89PNG")


def test_it_leaves_no_process(first: Ended):
    assert first.survivors == []


def test_a_second_run_finds_all_up_to_date_and_starts_nothing(first: Ended, again: Ended):
    assert (again.code, again.errors, again.survivors) == (0, "", [])
    assert again.output.startswith("Everything is up to date; nothing to do.\n")
    assert table(again.output) == table(first.output)
    assert again.logs == first.logs


def test_tracking_has_a_run_of_each_trial_and_of_the_training(slipway: Slipway, first: Ended):
    (store,) = started(slipway)
    (sweep,) = sweeps(slipway.home.durable / "sweeps")
    runs = {
        name.partition(" ")[0]: run for name, run in tracked(slipway).items()
    }  # a trial's name has its parameters too
    expected = {store.id, *(f"{sweep.sweep}.{number}" for number in range(TRIALS))}
    assert expected <= runs.keys()
    client = MlflowClient(slipway.home.tracking_uri)
    for name in expected:
        assert "loss" in runs[name].data.metrics
    logged = client.get_metric_history(runs[store.id].info.run_id, "loss")
    assert [(metric.step, metric.value) for metric in logged] == ledger.loss_curve(store.events())
    assert runs[store.id].info.status == "FINISHED"
    for number in range(TRIALS):
        run = runs[f"{sweep.sweep}.{number}"]
        assert "validation_loss" in run.data.metrics and run.data.tags["slipway.sweep"] == sweep.sweep


def test_the_registered_version_knows_where_it_came_from(slipway: Slipway, version: ModelVersion):
    (store,) = started(slipway)
    (sweep,) = sweeps(slipway.home.durable / "sweeps")
    folder = Path(unquote(urlparse(version.source).path))
    assert version.aliases == ["candidate", "champion"]
    specification = store.specification()
    expected = {
        "slipway.training": store.id,
        "slipway.recipe": "small-decoder",
        "slipway.snapshot": specification.snapshot,
        "slipway.tokenizer": specification.tokenizer,
        "slipway.origin.sweep": sweep.sweep,
    }
    assert expected.items() <= version.tags.items()
    assert {"slipway.revision", "slipway.commit", "slipway.bits_per_byte"} <= version.tags.keys()
    assert version.tags[MANIFEST_TAG] in [commit.manifest for commit in store.commits()]
    assert version.run_id == tracked(slipway)[store.id].info.run_id
    assert folder.is_dir()


def test_the_model_is_trained_anew_on_its_schedule(slipway: Slipway, first: Ended):
    with open_storage(slipway.home) as instance:
        states = {state.instigator_name: state for state in instance.all_instigator_state()}
    schedule = states["small_decoder_retraining"]
    assert schedule.status is InstigatorStatus.DECLARED_IN_CODE and schedule.is_running


def test_everything_it_made_is_in_dagsters_event_log(slipway: Slipway, first: Ended):
    nouns = {
        "small_texts": ("documents", "tokenizer", "snapshot", "staged_shards"),
        "small_decoder": ("sweep", "trial", "training", "checkpoint", "evaluation", "candidate", "champion"),
    }
    with open_storage(slipway.home) as instance:
        for lane, names in nouns.items():
            for noun in names:
                assert instance.get_latest_materialization_event(dg.AssetKey([lane, noun])), f"{lane}/{noun}"


def test_ctrl_c_ends_it_and_leaves_no_process(interrupted: Ended, stopped: tuple[int, int]):
    assert (interrupted.code, interrupted.survivors) == (130, [])
    assert interrupted.errors == "\ninterrupted; everything made so far is kept, the next run goes on from there\n"
    assert stopped[0] == 1 and 30 <= stopped[1] < STEPS


@pytest.mark.nightly
def test_sigterm_ends_it_as_ctrl_c_does(tmp_path: Path):
    other = Slipway(tmp_path)
    process = other.start("demo")
    until(lambda: bool(jobs.live(other.home)), process)
    process.terminate()
    process.communicate(timeout=ENDING_SECONDS)
    assert (process.returncode, other.pids()) == (130, [])


def test_a_changed_training_keeps_the_data(slipway: Slipway, first: Ended, interrupted: Ended):
    assert interrupted.manifests == first.manifests
    assert len(sweeps(slipway.home.durable / "sweeps")) == len(started(slipway)) == 2


@pytest.mark.nightly
def test_the_next_run_goes_on_from_the_checkpoint(slipway: Slipway, stopped: tuple[int, int], resumed: Ended):
    assert (resumed.code, resumed.errors, resumed.survivors) == (0, "", [])
    (store,), (incarnation, step) = changed(slipway), stopped
    done = [
        event["step"] for event in store.events() if event["event"] == "step" and event["incarnation"] > incarnation
    ]
    assert (min(done), max(done)) == (step + 1, STEPS)
    assert table(resumed.output)["training"] == f"{store.id}, 2 incarnations"


def demo(slipway: Slipway) -> Ended:
    done: subprocess.CompletedProcess[str] = slipway.run("demo")
    return ended(slipway, done.returncode, done.stdout, done.stderr)


def ended(slipway: Slipway, code: int, output: str, errors: str) -> Ended:
    logs = {path.name: path.stat().st_size for path in slipway.home.dagster.glob("*.log")}
    manifests = {path: path.stat().st_mtime_ns for path in slipway.home.durable.glob("snapshots/*")}
    command_lines = [processes.command_line(pid) for pid in slipway.pids()]
    return Ended(code, output, errors, command_lines, logs, manifests)


def table(output: str) -> dict[str, str]:
    """The rows of the table that a demo ends with."""
    rows = [line.strip("│ ").split("│") for line in output.splitlines() if line.startswith("│")]
    return {name.strip(): value.strip() for name, value in rows}


def started(slipway: Slipway) -> list[TrainingStore]:
    """The trainings that have run."""
    known = Trainings(slipway.home.durable / "trainings")
    return [store for id in known.ids() if (store := known.store(id)).newest_claim() is not None]


def changed(slipway: Slipway) -> list[TrainingStore]:
    """The training of the changed recipe, once it has started."""
    return [store for store in started(slipway) if store.specification().identity_config["run"]["steps"] == STEPS]


def steps(store: TrainingStore) -> int:
    """How far a training has come."""
    return max((event["step"] for event in store.events() if event["event"] == "step"), default=0)


def tracked(slipway: Slipway) -> dict[str, Run]:
    """MLflow's runs: a training's by its id, others by their name."""
    client = MlflowClient(slipway.home.tracking_uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments)
    return {_name(run.data.tags) or str(run.info.run_name): run for run in runs}


def _name(tags: dict[str, str]) -> str:
    return "" if "slipway.trial" in tags else tags.get("slipway.training", "")
