"""What an ordinary person logs of the trainings of a home, for platforms that know nothing of Slipway.

A peer gets all that a trainer, a dataset's builder and a search have at hand when they log: parameters, the figures of
each step, the scores, the counts, and that a rank was killed. What has to be worked out from it (the time left, what
the time went into, what stopping early saved) is for the peer to tell.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slipway.assets.datasets import inspection
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.sweeps.store import SweepStore
from slipway.resources.home import Home
from slipway.resources.pages.reading import flat
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import codec, listing
from slipway.trainer.data import shards
from slipway.trainer.record import files
from slipway.trainer.record.scores import Score

FIGURES = ("loss", "learning_rate", "gradient_norm", "tokens_per_second")
MOST_STEPS = 40
"""So many of the newest steps are logged, as a report to Ray Train takes a second on a busy machine."""


@dataclass(frozen=True)
class LoggedTraining:
    """One training."""

    name: str
    parameters: Mapping[str, str]
    total: int
    steps: Sequence[Mapping[str, float]]
    """`step` and the figures of each, in their order."""
    checkpoints: Mapping[int, str]
    """By step, the folder."""
    nodes: Sequence[str]
    scores: Mapping[str, float]
    """Of its last checkpoint; empty where none was evaluated."""


@dataclass(frozen=True)
class LoggedTrial:
    """One trial of a search."""

    number: int
    parameters: Mapping[str, str]
    validation_loss: float
    step: int


@dataclass(frozen=True)
class Logged:
    """All that a peer gets."""

    running: LoggedTraining
    champion: LoggedTraining
    model: str
    trials: Sequence[LoggedTrial]
    best_trial: int
    dataset: str
    documents: int
    tokens: int
    left_out: Mapping[str, int]
    """By reason."""
    fault: str
    """What interrupted the training that runs."""

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path


def of(home: Home, running: TrainingStore, champion: TrainingStore, model: str, fault: str) -> Logged:
    """What there is to log of a home with a sweep, a dataset, a champion, and a training that runs."""
    durable = home.durable
    [sweep], [dataset] = (listing.names_if_there(durable / what) for what in ("sweeps", "datasets"))
    state = SweepStore(durable / "sweeps" / sweep).state()
    assert state is not None and state.closed is not None and state.closed.best_trial is not None
    snapshot = shards.read_manifest(durable, pointer.current(durable, dataset) or "")
    inspected = inspection.inspect(durable, snapshot, examples=0)
    return Logged(
        running=training(running),
        champion=training(champion),
        model=model,
        trials=[
            LoggedTrial(trial.number, flat(trial.parameters), value, trial.last_step)
            for trial in state.trials.values()
            if (value := trial.reports.get(trial.last_step)) is not None
        ],
        best_trial=state.closed.best_trial,
        dataset=dataset,
        documents=inspected.remaining,
        tokens=sum(split.tokens for split in snapshot.splits.values()),
        left_out={removal.reason: removal.documents for removal in inspected.removals},
        fault=fault,
    )


def training(store: TrainingStore) -> LoggedTraining:
    """What there is to log of one training."""
    facts = store.read()
    steps = [event for event in store.events() if event["event"] == "step"][-MOST_STEPS:]
    figures = [{name: float(event[name]) for name in ("step", *FIGURES) if name in event} for event in steps]
    return LoggedTraining(
        name=store.id,
        parameters=flat(facts.specification.identity_config),
        total=int(facts.specification.identity_config["run"]["steps"]),
        steps=figures,
        checkpoints={commit.step: str(store.folder.parents[1] / commit.folder) for commit in facts.commits},
        nodes=facts.nodes,
        scores=_scores(store),
    )


def _scores(store: TrainingStore) -> dict[str, float]:
    names: dict[str, Any] = {}
    for commit in store.read().commits:
        score = codec.read_if_whole(files.named(store.folder, files.EVALUATIONS, commit.name), Score)
        if score is not None and not score.damaged:
            names = {"loss": score.loss, "accuracy": score.accuracy, "bits_per_byte": score.bits_per_byte}
    return names
