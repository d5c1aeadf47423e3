"""A sweep as an Optuna study: Optuna itself opens what was written."""

from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from slipway.assets.sweeps.events import Event
from slipway.assets.sweeps.optuna_export import export
from slipway.assets.sweeps.state import fold
from tests.assets.sweeps.simulation import CrashError, budgeted, log_of, opened, power_law

pytestmark = pytest.mark.pure

SPACE = {
    "optimizer.learning_rate": {"loguniform": [1e-4, 1.0]},
    "optimizer.weight_decay": {"uniform": [0.0, 0.5], "step": 0.1},
    "model.layers": {"randint": [1, 6], "when": {"layout": [{"shard": "full"}]}},
    "layout": {"choice": [{"shard": "none"}, {"shard": "full"}]},
}
WRITTEN = {"optimizer.learning_rate": 5.0, "optimizer.weight_decay": 0.1, "layout": {"shard": "none"}}


def curve(parameters, step):
    if parameters["optimizer.learning_rate"] > 0.1 and parameters["optimizer.learning_rate"] < 1:
        raise CrashError("out of memory")
    return power_law({"model.layers": 1, **parameters}, step)


@pytest.fixture(scope="module")
def log() -> list[Event]:
    return log_of(opened(space=SPACE, written=WRITTEN), budgeted(trials=20, failed_trials=20), curve)


def journal(path: Path) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(path)))


@pytest.mark.parametrize("name", ["study.journal", "study.db"])
def test_optuna_loads_the_study_with_every_trial(tmp_path: Path, log: list[Event], name: str):
    sweep, path = fold(log), tmp_path / name
    export(sweep, log, path)
    storage = f"sqlite:///{path}" if name.endswith(".db") else journal(path)
    study = optuna.load_study(study_name=sweep.plan.sweep, storage=storage)
    states = {"completed": TrialState.COMPLETE, "stopped": TrialState.PRUNED, "failed": TrialState.FAIL}
    assert [frozen.state for frozen in study.trials] == [states[trial.state] for trial in sweep.trials.values()]
    assert sweep.best is not None and study.best_trial.number == sweep.best.number
    assert study.best_value == sweep.best.value
    for exported, trial in zip(study.trials, sweep.trials.values(), strict=True):
        assert set(exported.intermediate_values) == set(trial.reports)
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


def test_values_that_optuna_cannot_hold_are_reported_as_text(tmp_path: Path, log: list[Event]):
    export(fold(log), log, tmp_path / "study.journal")
    (name,) = optuna.get_all_study_names(journal(tmp_path / "study.journal"))
    study = optuna.load_study(study_name=name, storage=journal(tmp_path / "study.journal"))
    assert {trial.params["layout"] for trial in study.trials} == {'{"shard": "none"}', '{"shard": "full"}'}
    assert study.trials[0].user_attrs["outside the space"] == '{"optimizer.learning_rate": 5.0}'


def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path, log: list[Event]):
    path = tmp_path / "study.journal"
    path.write_text("mine")
    with pytest.raises(ValueError, match=r"study\.journal exists already, expected the name of a new file"):
        export(fold(log), log, path)
    assert path.read_text() == "mine"


def test_another_ending_is_refused(tmp_path: Path, log: list[Event]):
    with pytest.raises(ValueError, match=r"found the ending '\.txt', expected \.log, \.journal for a journal or \.db"):
        export(fold(log), log, tmp_path / "study.txt")
