"""Measurements of a training's checkpoints: their scores, and the verdicts of the gate.

They show which of two trainings is better, and why one is not the champion. Read from records, without MLflow.
"""

from pathlib import Path

from slipway.resources.promotions import promotion
from slipway.resources.promotions.promotion import Judgement
from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.base import codec
from slipway.trainer.record import files
from slipway.trainer.record.scores import Score


def scores(facts: TrainingFacts) -> dict[str, str]:
    """The score of each commit in words, by its name. Raises OSError."""
    there = set(files.names(facts.folder, files.EVALUATIONS))
    paths = {commit_name: files.named(facts.folder, files.EVALUATIONS, commit_name) for commit_name in there}
    scores_read = {name: codec.read_if_whole(path, Score) for name, path in paths.items()}
    return {name: score_words(score) for name, score in scores_read.items() if score is not None}


def score_words(score: Score) -> str:
    """A score in words, such as: 1.605 bits per byte, loss 3.919, accuracy 31.2%."""
    if score.damaged:
        return f"not measured: {score.damaged}"
    bits = f"{score.bits_per_byte:.4g} bits per byte, " if score.bits_per_byte else ""
    return f"{bits}loss {score.loss:.4g}, accuracy {score.accuracy:.1%}"


def verdicts(durable: Path, facts: TrainingFacts) -> tuple[str, ...]:
    """The gate's verdicts on the training's checkpoints, a sentence each, the newest first. Raises OSError."""
    steps = {commit.manifest: commit.step for commit in facts.commits}
    dated_verdicts = []
    for model in promotion.models(durable):
        champion = promotion.champion(durable, model)
        for manifest, step in steps.items():
            judgement = promotion.judged(durable, model, manifest)
            if judgement is not None:
                dated_verdicts.append((judgement.at, verdict(judgement, step, champion.manifest if champion else "")))
    return tuple(sentence for _, sentence in sorted(dated_verdicts, reverse=True))


def verdict(judgement: Judgement, step: int, champion: str) -> str:
    """One judgement in a sentence; `champion` is the manifest of the current champion."""
    what = f"Step {step:,} as {judgement.model}"
    if judgement.undecided:
        return f"{what} could not be judged: {judgement.undecided}."
    if judgement.passed:
        now = " and is the champion" if judgement.candidate == champion else ""
        return f"{what} passed every check{now}{_beside(judgement)}."
    named = ", ".join(name.replace("_", " ") for name in judgement.failed)
    return f"{what} did not pass: {named}{_beside(judgement)}."


def _beside(judgement: Judgement) -> str:
    """The two compared values; if there was no champion, the only value."""
    own, other = (judgement.figures.get(name) for name in ("suite_loss", "champion_loss"))
    unit = judgement.figures.get("unit", "")
    if own is None:
        return ""
    if other is None:
        return f"; {own:.4g} {unit}, without a champion to compare with"
    version = judgement.figures.get("champion_version")
    return f"; {own:.4g} {unit}, compared with {other:.4g} of the champion, version {version}"
