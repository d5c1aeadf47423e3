"""The gate: judges a registered checkpoint by its recipe's policy and in comparison with the current champion.

Candidate and champion are measured on the same examples (`slipway.assets.promotion.evaluation_set`), and the gate
compares the paired difference of their losses with its interval (`slipway.assets.promotion.comparison`). If the suite
changes during the measurement, both are measured again. If the champion cannot be measured, the candidate waits for a
person. A candidate that is no better than a model that only knows the frequency of each token or class
(`guessing_entropy`) fails without a comparison. The result is one immutable record with the hashes of all inputs, which
`slipway.resources.promotions.promotion` requires for a promotion.

Both models also answer the same examples of a suite's generation tasks (`answers_of_rivals`). Stored answers are reused
if their examples still exist. If the questions differ (because a task or the harness changed in between), both models
answer again.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slipway.assets.datasets.images.snapshot import class_entropy
from slipway.assets.datasets.texts.snapshot import unigram_entropy
from slipway.assets.generating import Generating
from slipway.assets.measurement import Measuring
from slipway.assets.promotion import contamination, evaluation_set
from slipway.assets.promotion import policy_checks as checks
from slipway.assets.promotion.comparison import Values
from slipway.assets.promotion.evaluation import evaluate
from slipway.assets.promotion.evaluation_set import EvaluationSet
from slipway.assets.promotion.policy_checks import CheckOutcome, Rivals, TaskRivals
from slipway.assets.suites.generation import answers
from slipway.assets.suites.generation.answers import AnsweredExample, TaskFigures, questions_of
from slipway.assets.suites.measured import ExampleTable, ModelFigures
from slipway.recipes.suite import GenerationSection, SuiteRecipe
from slipway.recipes.training import ModelRecipe
from slipway.resources.mlflow.registry import FOLDER_TAG, SNAPSHOT_TAG, TRAINING_TAG, Registry, Version
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions import model_record
from slipway.resources.promotions.promotion import Judgement, NotJudged, NotPromoted, Promotion, Promotions
from slipway.resources.short_jobs import size
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.checkpoints import verify
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.records import RunPolicy
from slipway.resources.trainings.store import all_trainings
from slipway.trainer.base import atomic, digest
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier
from slipway.trainer.checkpoint.tiers.tier import DURABLE
from slipway.trainer.data import mixtures
from slipway.trainer.data.images import ImageSnapshot
from slipway.trainer.data.shards import TextSnapshot
from slipway.trainer.data.snapshots import Snapshot, read
from slipway.trainer.record.fence import Commit, Token
from slipway.trainer.record.scores import Score

Rows = Sequence[AnsweredExample]


class UnmeasurableChampion(Exception):
    """The champion cannot be measured; the message has the reason."""


@dataclass(frozen=True)
class Candidate:
    """A version to judge, with its training."""

    version: Version
    recipe: ModelRecipe
    facts: TrainingFacts
    commit: Commit
    score: Score
    """The score on its training's validation split."""
    snapshot: Snapshot


@dataclass(frozen=True)
class Gate:
    """Judges the versions of one registered model, and promotes those that pass."""

    measuring: Measuring
    tracking: Tracking
    model: str
    recipes: Mapping[str, ModelRecipe] = field(default_factory=dict)
    """By name. The policy of a candidate's own recipe applies."""
    suites: Mapping[str, SuiteRecipe] = field(default_factory=dict)

    @property
    def tiers(self) -> Tiers:
        return self.measuring.tiers

    @property
    def registry(self) -> Registry:
        return Registry(self.tracking, self.tiers.durable_path)

    @property
    def promotions(self) -> Promotions:
        return Promotions(self.registry, self.tiers.durable_path, self.model)

    def judge(self, version: Version, by: str) -> Judgement:
        """Judge a version against the current champion, and record the judgement.

        Raises ValueError for a version whose recipe, training or checkpoint is gone.
        """
        candidate = self._candidate(version)
        while True:
            judgement, evaluation = self._judged(candidate, by)
            if evaluation is None or evaluation_set.is_current(self.tiers.durable_path, candidate.recipe, evaluation):
                return self._keep(judgement)

    def promote(self, version: Version, by: str, why: str) -> Promotion:
        """Promote a version that passes the gate. It is judged again whenever the champion has changed.

        Raises NotPromoted with the reason.
        """
        while True:
            with contextlib.suppress(NotJudged), self._in_words(version):
                return self.promotions.promote(version, by, why)
            self.judge(version, by)  # another round is needed only if another version was promoted meanwhile

    @contextlib.contextmanager
    def _in_words(self, version: Version) -> Iterator[None]:
        """Add the findings of the failed checks to a refusal."""
        try:
            yield
        except NotPromoted as error:
            if type(error) is not NotPromoted:  # the subclasses have reasons of their own
                raise error from None
            judgement = self.promotions.judged(version.manifest)
            reasons = ""
            if judgement:
                reasons = checks.rejection_reasons(judgement, self.promotions.champion())
            raise (NotPromoted(f"{error}: {reasons}") if reasons else error) from None

    def rollback(self, version: Version, by: str, why: str) -> Promotion:
        """Make a former champion with undamaged bytes the champion again. Raises NotPromoted with the reason."""
        self.promotions.admit(by, f"make version {version.number} the champion again")
        champion = self.promotions.champion()
        known = self.promotions.history()
        former = list(dict.fromkeys(promotion.version for promotion in known if promotion.version))
        damage = self._damage(version)
        outcomes = {
            checks.WAS_CHAMPION: any(promotion.manifest == version.manifest for promotion in known),
            checks.IS_WHOLE: not damage,
        }
        check_figures = {checks.WAS_CHAMPION: {"champions": former}, checks.IS_WHOLE: {"damaged": damage}}
        compared = champion.manifest if champion else ""
        figures = {"why": why, "checks": check_figures}
        self._keep(Judgement(self.model, version.manifest, compared, outcomes, by, figures=figures, rollback=True))
        with self._in_words(version):
            return self.promotions.promote(version, by, why)

    def _keep(self, judgement: Judgement) -> Judgement:
        self.promotions.record(judgement)
        return judgement

    def _judged(self, candidate: Candidate, by: str) -> tuple[Judgement, EvaluationSet | None]:
        """The judgement, and the evaluation set; None if no measurement was needed."""
        version = candidate.version
        score = candidate.score
        policy = candidate.recipe.gate
        entropy = guessing_entropy(candidate.snapshot, self.tiers.durable_path)
        champion = self.promotions.champion()
        figures: dict[str, Any] = {"loss": score.loss, "unigram_entropy": entropy, **score.coded}
        inputs = {"candidate": version.manifest, "policy": _digest(policy.model_dump(mode="json"))}
        outcomes = {checks.BEATS_UNIGRAMS: CheckOutcome(score.loss < entropy)}
        evaluation = None
        undecided = ""
        if not outcomes[checks.BEATS_UNIGRAMS].passed:
            why = "its loss is not below the entropy"
            outcomes |= {name: checks.not_reached(why) for name in checks.CHECKS if name not in outcomes}
        else:
            text = bool(score.coded)
            evaluation = evaluation_set.of_recipe(
                self.measuring, candidate.recipe, self.suites, candidate.snapshot, text
            )
            inputs |= {"suite": evaluation.on, "champion": champion.manifest if champion else ""}
            try:
                outcomes |= self._measured(candidate, champion, evaluation, figures, inputs)
            except UnmeasurableChampion as error:
                assert champion is not None
                undecided = (
                    f"the champion, version {champion.version}, cannot be measured: {error}; repair it and "
                    f"materialise the candidate, or choose another: slipway models rollback {self.model} VERSION"
                )
                figures["champion_version"] = champion.version
                outcomes |= {name: checks.not_reached(str(error)) for name in checks.CHECKS if name not in outcomes}
        check_figures: dict[str, dict[str, Any]] = {}
        for name, outcome in outcomes.items():
            check_figures[name] = dict(outcome.figures)
            if outcome.note:
                check_figures[name]["note"] = outcome.note
        judgement = Judgement(
            self.model,
            version.manifest,
            champion.manifest if champion else "",
            {name: outcomes[name].passed for name in checks.CHECKS},
            by,
            figures={**figures, "checks": check_figures},
            undecided=undecided,
            inputs=inputs,
            approval_hours=policy.approval_hours if policy.approval == "required" else 0.0,
            cool_down_hours=policy.cool_down_hours,
        )
        return judgement, evaluation

    def _measured(
        self,
        candidate: Candidate,
        champion: Promotion | None,
        evaluation: EvaluationSet,
        figures: dict[str, Any],
        inputs: dict[str, str],
    ) -> dict[str, CheckOutcome]:
        """The checks that need measurements; adds to `figures` and `inputs`. Raises UnmeasurableChampion."""
        version = candidate.version
        policy = candidate.recipe.gate
        rival = None
        if champion is not None and champion.manifest != version.manifest:
            rival = self._measure_champion(champion, candidate, evaluation)
        own, table = evaluation.measure(candidate.commit, candidate.facts.run_policy, candidate.snapshot)
        inputs["candidate_examples"] = own.table
        figures |= {"suite_examples": own.examples, "suite_loss": own.compared, "unit": own.unit, **own.tasks}
        weights = size.of_checkpoint(FolderTier(self.tiers.durable_path), candidate.commit).weights / 1e9
        outcomes = {
            checks.WITHIN_LIMITS: checks.limits(policy, _figures(own, weights)),
            checks.HAS_LINEAGE: self._lineage(candidate),
            checks.SUITE_IS_UNSEEN: self._exposure(candidate, champion if rival else None, evaluation),
        }
        seed = checks.seed_of(policy, version.manifest, champion.manifest if champion else "", evaluation.on)
        if rival is None:
            why = "it is the champion" if champion else "there is no champion yet"
            outcomes |= {n: checks.not_needed(why) for n in (checks.BEATS_CHAMPION, checks.NO_WORSE_SLICE)}
            return outcomes | self._tasks(candidate, None, outcomes, inputs, seed)
        champion_figures, their_table = rival
        assert champion is not None
        inputs["champion_examples"] = champion_figures.table
        figures |= {"champion_version": champion.version, "champion_loss": champion_figures.compared}
        rivals = _rivals(table, their_table, own, champion_figures)
        compared = checks.difference(rivals, policy, seed)
        outcomes |= {
            checks.BEATS_CHAMPION: checks.against_champion(compared, policy),
            checks.NO_WORSE_SLICE: checks.slices(rivals, policy),
        }
        return outcomes | self._tasks(candidate, champion, outcomes, inputs, seed)

    def _tasks(
        self,
        candidate: Candidate,
        champion: Promotion | None,
        outcomes: Mapping[str, CheckOutcome],
        inputs: dict[str, str],
        seed: int,
    ) -> dict[str, CheckOutcome]:
        """The checks of the answers to the suite's generation tasks and of their questions; adds to `inputs`.

        They cost the most, so a candidate that has failed other checks does not run them. Raises UnmeasurableChampion.
        """
        suite = self.suites.get(candidate.recipe.suite or "")
        policy = candidate.recipe.gate
        if suite is None or suite.generation is None:
            return {checks.ANSWERS_TASKS: checks.not_needed("the suite has no generation tasks")}
        if not all(outcome.passed for outcome in outcomes.values()):
            return {checks.ANSWERS_TASKS: checks.not_reached("another check was not passed")}
        compares = champion is not None and any(task.margin is not None for task in policy.tasks.values())
        rival = None
        if champion and compares:
            rival = Version(self.model, champion.version, champion.source, champion.tags)
        try:
            answers = answers_of_rivals(
                Generating(self.measuring, self.model), suite.generation, candidate.version, rival
            )
        except Incomparable as error:
            raise UnmeasurableChampion(str(error)) from None
        inputs |= answers.hashes
        questions_unseen = self._weights(candidate, champion).of_questions(answers.questions, suite, policy.leaks)
        return {
            checks.ANSWERS_TASKS: checks.check_tasks(policy, answers.rivals, seed),
            checks.SUITE_IS_UNSEEN: contamination.together(outcomes[checks.SUITE_IS_UNSEEN], questions_unseen),
        }

    def _exposure(self, candidate: Candidate, rival: Promotion | None, evaluation: EvaluationSet) -> CheckOutcome:
        """Check whether the data that led to the candidate contains the suite."""
        recipe = self.suites.get(candidate.recipe.suite or "")
        documents_suite = evaluation.suite
        if recipe is None or documents_suite is None or not isinstance(candidate.snapshot, TextSnapshot):
            return contamination.without_suite()
        policy = candidate.recipe.gate.leaks
        return self._weights(candidate, rival).of_documents(documents_suite, evaluation.examples, recipe, policy)

    def _weights(self, candidate: Candidate, rival: Promotion | None) -> contamination.TrainedWeights:
        where = self.tiers.durable_path
        own = mixtures.sources_of(candidate.snapshot)
        champion = where / rival.tags[FOLDER_TAG] if rival else None
        return contamination.TrainedWeights(self.tiers, where / candidate.commit.folder, own, champion)

    def _lineage(self, candidate: Candidate) -> CheckOutcome:
        """Check that everything in the candidate's lineage exists, with every committed byte."""
        record = model_record.read(self.tiers.durable_path, self.model, candidate.version.manifest)
        damage = self._damage(candidate.version)
        if record:
            record = model_record.verified(record, damage)
            model_record.keep(self.tiers.durable_path, record)
        on_a_cluster = self.measuring.compute.hardware is not None or not self.measuring.compute.sees_nodes
        return checks.check_lineage(
            record, self.tiers.durable_path, candidate.recipe.gate.lineage, on_a_cluster, damage
        )

    def _candidate(self, version: Version) -> Candidate:
        """The candidate for a version, with its evaluation on its training's validation split."""
        named = f"model {self.model}: version {version.number}"
        if not version.training:
            raise ValueError(f"{named}: it is not a checkpoint of Slipway")
        facts = all_trainings(self.tiers).store(version.training).read()
        recipe = self.recipes.get(facts.specification.recipe)
        if recipe is None:
            raise ValueError(f"{named}: its recipe {facts.specification.recipe} is gone, and with it its policy")
        commits = [commit for commit in facts.commits if commit.manifest == version.manifest]
        if not commits:
            raise ValueError(f"{named}: training {facts.id} does not have its checkpoint any more")
        [score] = evaluate(facts, commits[-1:], self.measuring)
        if score.damaged:
            raise ValueError(f"{named}: {score.damaged}")
        snapshot = read(self.tiers.durable_path, facts.specification.snapshot)
        return Candidate(version, recipe, facts, commits[-1], score, snapshot)

    def _measure_champion(
        self, champion: Promotion, candidate: Candidate, evaluation: EvaluationSet
    ) -> tuple[ModelFigures, ExampleTable]:
        """Measure the champion on the candidate's examples, in its own tokens.

        It uses the placement of its own training, or the candidate's if that training is gone. Raises
        UnmeasurableChampion.
        """
        with _finding_unmeasurable(champion):
            described = read(self.tiers.durable_path, champion.tags[SNAPSHOT_TAG])
            commit = Commit(0, Token(0), champion.tags[FOLDER_TAG], champion.manifest)
            policy = self._policy_of(champion.tags.get(TRAINING_TAG, "")) or candidate.facts.run_policy
            return evaluation.measure(commit, policy, described)

    def _policy_of(self, training: str) -> RunPolicy | None:
        """The run policy of a training; None if the training is gone."""
        if not training or not all_trainings(self.tiers).store(training).folder.is_dir():
            return None
        return all_trainings(self.tiers).store(training).run_policy()

    def _damage(self, version: Version) -> str:
        """The damage of a version's bytes; empty if all are as committed."""
        commit = Commit(0, Token(0), version.tags.get(FOLDER_TAG, ""), version.manifest)
        try:
            verify(self.tiers.shared()[DURABLE], commit, lambda done, total: None)
        except DamagedCheckpoint as damage:
            return str(damage)
        return ""


class Incomparable(ValueError):
    """The champion cannot answer, or both models got different examples even in a second attempt."""


@dataclass(frozen=True)
class TaskAnswers:
    """The answers of candidate and champion."""

    rivals: Mapping[str, TaskRivals]
    """By task."""
    hashes: Mapping[str, str]
    """The hashes of the compared answers."""
    questions: Mapping[str, Mapping[str, str]]
    """The questions, by task and BLAKE3."""


def answers_of_rivals(
    generating: Generating, section: GenerationSection, candidate: Version, champion: Version | None
) -> TaskAnswers:
    """Both models' answers to the tasks of a suite.

    Raises Incomparable, ValueError for a candidate that cannot be served, and dg.Failure.
    """
    durable = generating.measuring.tiers.durable_path
    for anew in (False, True):
        own = generating.of_suite(candidate, section, anew)
        champion_figures = _answers_of_champion(generating, section, champion, anew) if champion else {}
        rows = {task: answers.examples(durable, figures) for task, figures in own.items()}
        others = {task: answers.examples(durable, figures) for task, figures in champion_figures.items()}
        if all(_questions(rows[task]) == _questions(others[task]) for task in others):
            rivals = {
                task: TaskRivals(_values(rows[task]), _values(others[task]) if task in others else None)
                for task in rows
            }
            questions = {task: questions_of(examples) for task, examples in rows.items()}
            return TaskAnswers(
                rivals, {**_answer_hashes("candidate", own), **_answer_hashes("champion", champion_figures)}, questions
            )
    raise Incomparable("the generation tasks ask different examples each time: a task must draw them by a fixed seed")


def guessing_entropy(described: Snapshot, durable: Path) -> float:
    """The loss on a snapshot, in nats, of a model that only knows the frequency of each token or class."""
    if isinstance(described, ImageSnapshot):
        return class_entropy(described, durable)
    return unigram_entropy(described, durable)


@contextlib.contextmanager
def _finding_unmeasurable(champion: Promotion) -> Iterator[None]:
    """Raises UnmeasurableChampion for a champion that is not a checkpoint of Slipway, or whose snapshot is gone."""
    try:
        yield
    except KeyError as error:
        raise UnmeasurableChampion(f"it has no tag {error}") from None
    except FileNotFoundError as error:
        raise UnmeasurableChampion(f"{error.filename}: it is gone") from None
    except ValueError as error:
        raise UnmeasurableChampion(str(error)) from None


def _rivals(table: ExampleTable, champion_table: ExampleTable, own: ModelFigures, other: ModelFigures) -> Rivals:
    """Both models on the same examples. Raises UnmeasurableChampion if the examples differ."""
    if own.unit != other.unit or len(table.losses) != len(champion_table.losses):
        raise UnmeasurableChampion(f"it is measured in {other.unit} on {other.examples} examples, the candidate in "
                                   f"{own.unit} on {own.examples}")  # fmt: skip
    losses, sizes = table.compared(own.unit)
    champion, _ = champion_table.compared(own.unit)
    return Rivals(losses, champion, sizes, table.slices())


def _figures(own: ModelFigures, weights: float) -> dict[str, float | None]:
    """The metrics to which the policy's limits apply."""
    names = ("loss", "perplexity", "bits_per_byte", "calibration_error", "milliseconds_per_prediction", "accuracy")
    return {**{name: own.figure(name) for name in names}, **own.tasks, "weights_gigabytes": weights}


def _digest(value: Mapping[str, Any]) -> str:
    return digest.sha256(atomic.canonical_json(dict(value)))


def _answers_of_champion(
    generating: Generating, section: GenerationSection, champion: Version, anew: bool
) -> dict[str, TaskFigures]:
    try:
        return generating.of_suite(champion, section, anew)
    except ValueError as error:
        raise Incomparable(f"its answers to generation tasks: {error}") from None


def _questions(rows: Rows) -> dict[int, tuple[str, str]]:
    """The question and the expected answer, by example."""
    return {row.example: (row.prompt, row.expected) for row in rows}


def _values(rows: Rows) -> dict[str, Values]:
    """The values of each metric in the order of the examples, without examples that lack the metric."""
    metrics = sorted({row.metric for row in rows})
    ordered = sorted(rows, key=lambda row: row.example)
    return {name: np.array([row.value for row in ordered if row.metric == name], np.float64) for name in metrics}


def _answer_hashes(whose: str, figures: dict[str, TaskFigures]) -> dict[str, str]:
    return {f"{whose}_answers_{task}": task_figures.table for task, task_figures in figures.items()}
