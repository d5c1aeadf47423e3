"""MLflow alone: the trainings of a home logged as an ordinary person does, and MLflow's own pages over them."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.peers.logged import Logged, LoggedTraining
from benchmarks.peers.peer import Peer, PeerPage, answers
from tests.conftest import until
from tests.embedded.slipway import free_port

START_SECONDS = 120.0


@contextlib.contextmanager
def served(folder: Path, logged: Logged) -> Iterator[Peer]:
    """MLflow's server over what was logged, in `folder`."""
    folder.mkdir(parents=True)
    uri = f"sqlite:///{folder}/mlflow.db"
    ids = _log(uri, folder, logged)
    port = free_port()
    command = ["server", "--port", str(port), "--workers", "1", "--backend-store-uri", uri]
    environ = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", "mlflow", *command], env=environ, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(f"{url}/health"), "MLflow alone answers", START_SECONDS)
        yield Peer("MLflow alone", _pages(url, ids, logged), {"best": str(logged.best_trial)})
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def _log(uri: str, folder: Path, logged: Logged) -> dict[str, str]:
    """Log all, by MLflow's fluent interface, as its tutorials do; the ids of experiments and runs."""
    import mlflow
    import numpy
    from mlflow.data import from_numpy

    mlflow.set_tracking_uri(uri)
    ids: dict[str, str] = {}
    data = from_numpy(numpy.zeros(1), name=logged.dataset)
    for what, name in (("trainings", logged.model), ("trials", f"{logged.model}-search")):
        ids[what] = mlflow.create_experiment(name, artifact_location=(folder / "artifacts").as_uri())
    mlflow.set_experiment(experiment_id=ids["trainings"])
    counts = {"documents": logged.documents, "tokens": logged.tokens}
    left_out = {f"left_out.{name}": count for name, count in logged.left_out.items()}
    for what, training in (("champion", logged.champion), ("running", logged.running)):
        run = mlflow.start_run(run_name=training.name)
        ids[what] = run.info.run_id
        mlflow.log_input(data, context="training")
        mlflow.log_params({**training.parameters, **{f"dataset.{name}": count for name, count in counts.items()}})
        mlflow.log_params({f"dataset.{name}": count for name, count in left_out.items()})
        mlflow.set_tag("nodes", ", ".join(training.nodes))
        _log_steps(training)
        if what == "running":  # it runs on: nothing ends it
            mlflow.set_tag("fault", logged.fault)
            mlflow.tracking.fluent._active_run_stack.get().clear()
            continue
        mlflow.log_metrics({f"evaluation_{name}": value for name, value in training.scores.items()})
        mlflow.end_run()
    client = mlflow.MlflowClient()
    client.create_registered_model(logged.model)
    version = client.create_model_version(logged.model, (folder / "artifacts").as_uri(), ids["champion"])
    client.set_registered_model_alias(logged.model, "champion", version.version)
    mlflow.set_experiment(experiment_id=ids["trials"])
    for trial in logged.trials:
        with mlflow.start_run(run_name=f"trial {trial.number}"):
            mlflow.log_params(dict(trial.parameters))
            mlflow.log_metric("validation_loss", trial.validation_loss, step=trial.step)
    return ids


def _log_steps(training: LoggedTraining) -> None:
    import mlflow

    for figures_of_step in training.steps:
        figures = {name: value for name, value in figures_of_step.items() if name != "step"}
        mlflow.log_metrics(figures, step=int(figures_of_step["step"]))
    for step in sorted(training.checkpoints)[-3:]:
        mlflow.log_text(training.checkpoints[step], f"checkpoints/step-{step}/where.txt")


def _pages(url: str, ids: dict[str, str], logged: Logged) -> list[PeerPage]:
    runs, trials = (f"{url}/#/experiments/{ids[what]}" for what in ("trainings", "trials"))
    both = f"[%22{ids['running']}%22,%22{ids['champion']}%22]"
    of = {name: frozenset({name}) for name in ("running", "champion", "sweep", "dataset")}
    anything = frozenset({"running", "champion", "sweep", "dataset", "all", "night"})
    pages = [
        PeerPage("the first page", f"{url}/", 0, anything),
        PeerPage("the list of experiments", f"{url}/#/experiments", 1, anything),
        PeerPage("the runs of an experiment", f"{runs}/runs", 2, anything - {"dataset"}),
        PeerPage("the charts of an experiment", f"{runs}/runs?compareRunsMode=CHART", 3, of["running"]),
        PeerPage("the trials", f"{trials}/runs", 2, of["sweep"]),
        PeerPage(
            "the trials by their validation loss",
            f"{trials}/runs?orderByKey=metrics.%60validation_loss%60&orderByAsc=true",
            3,
            of["sweep"],
        ),
        PeerPage(
            "two runs compared",
            f"{url}/#/compare-runs?runs={both}&experiments=[%22{ids['trainings']}%22]",
            5,
            of["running"],
        ),
        PeerPage("the models", f"{url}/#/models", 1, of["champion"] | {"all"}),
        PeerPage("a model", f"{url}/#/models/{logged.model}", 2, of["champion"]),
        PeerPage("a version of a model", f"{url}/#/models/{logged.model}/versions/1", 3, of["champion"]),
    ]
    for what in ("running", "champion"):
        run = f"{url}/#/experiments/{ids['trainings']}/runs/{ids[what]}"
        about = of[what] | of["dataset"]
        pages += [
            PeerPage(f"the run of the {what} one", run, 3, about),
            PeerPage(f"the metrics of the {what} one", f"{run}/model-metrics", 4, about),
            PeerPage(f"the artefacts of the {what} one", f"{run}/artifacts", 5, about, ("text=checkpoints >> nth=-1",)),
        ]
    return pages
