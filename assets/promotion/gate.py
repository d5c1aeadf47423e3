"""The gate: judges a registered checkpoint by its recipe's policy, against the data and against the champion of now.

Candidate and champion are measured on the same examples (`slipway.assets.promotion.evaluation_set`), and what is
compared is the paired difference of their losses with its interval (`slipway.assets.promotion.comparison`). If the
suite became another one while they were measured, both are measured anew. A champion that cannot be measured is not
beaten: the candidate waits for a person. A candidate that is not better than a model that has learnt nothing but how
frequent each token or class is (`guessing_entropy`) is compared with nobody. What the gate finds is one immutable
record with the hashes of all that went into it, without which `slipway.resources.promotions.promotion` promotes
nothing.

Both answer a suite's generation tasks too (`answers_of_rivals`), one and the same examples. What was answered before
counts, where its examples are there. If the two were asked something else (a task or the harness became another one
between the two), both are asked anew.
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
    """The champion cannot be compared with; the message says why."""


@dataclass(frozen=True)
class Candidate:
    """What is to be judged."""

    version: Version
    recipe: ModelRecipe
    facts: TrainingFacts
    commit: Commit
    score: Score
    """On its training's validation split."""
    snapshot: Snapshot


@dataclass(frozen=True)
class Gate:
    """What judges the versions of one registered model, and promotes those that pass."""

    measuring: Measuring
    tracking: Tracking
    model: str
    recipes: Mapping[str, ModelRecipe] = field(default_factory=dict)
    """By name: a candidate is judged by the policy of its recipe."""
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
        """Judge a version against the champion of now, and keep the judgement.

        Raises ValueError for a version whose recipe, training or checkpoint is gone.
        """
        candidate = self._candidate(version)
        while True:
            judgement, evaluation = self._judged(candidate, by)
            if evaluation is None or evaluation_set.is_current(self.tiers.durable_path, candidate.recipe, evaluation):
                return self._keep(judgement)

    def promote(self, version: Version, by: str, why: str) -> Promotion:
        """Promote a version that the gate lets pass, judging it again whenever another one became the champion.

        Raises NotPromoted with the reason.
        """
        while True:
            with contextlib.suppress(NotJudged), self._in_words(version):
                return self.promotions.promote(version, by, why)
            self.judge(version, by)  # each round is one in which another version was promoted

    @contextlib.contextmanager
    def _in_words(self, version: Version) -> Iterator[None]:
        """Adds to a refusal by the checks what each of them found."""
        try:
            yield
        except NotPromoted as error:
            judgement = self.promotions.judged(version.manifest) if type(error) is NotPromoted else None
            reasons = checks.rejection_reasons(judgement, self.promotions.champion()) if judgement else ""
            raise (NotPromoted(f"{error}: {reasons}") if reasons else error) from None

    def rollback(self, version: Version, by: str, why: str) -> Promotion:
        """Make a version the champion again whose bytes are whole. Raises NotPromoted with the reason."""
        self.promotions.admit(by, f"make version {version.number} the champion again")
        champion, known = self.promotions.champion(), self.promotions.history()
        former, damage = (
            list(dict.fromkeys(promotion.version for promotion in known if promotion.version)),
            self._damage(version),
        )
        outcomes = {
            checks.WAS_CHAMPION: any(promotion.manifest == version.manifest for promotion in known),
            checks.IS_WHOLE: not damage,
        }
        check_figures = {checks.WAS_CHAMPION: {"champions": former}, checks.IS_WHOLE: {"damaged": damage}}
        compared, figures = champion.manifest if champion else "", {"why": why, "checks": check_figures}
        self._keep(Judgement(self.model, version.manifest, compared, outcomes, by, figures=figures, rollback=True))
        with self._in_words(version):
            return self.promotions.promote(version, by, why)

    def _keep(self, judgement: Judgement) -> Judgement:
        self.promotions.record(judgement)
        return judgement

    def _judged(self, candidate: Candidate, by: str) -> tuple[Judgement, EvaluationSet | None]:
        """The judgement, and what the two were measured on; None where nothing had to be measured."""
        version, score, policy = candidate.version, candidate.score, candidate.recipe.gate
        entropy = guessing_entropy(candidate.snapshot, self.tiers.durable_path)
        champion = self.promotions.champion()
        figures: dict[str, Any] = {"loss": score.loss, "unigram_entropy": entropy, **score.coded}
        inputs = {"candidate": version.manifest, "policy": _digest(policy.model_dump(mode="json"))}
        outcomes = {checks.BEATS_UNIGRAMS: CheckOutcome(score.loss < entropy)}
        evaluation, undecided = None, ""
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
                    f"the champion, version {champion.version}, cannot be compared with: {error}; mend it and "
                    f"materialise the candidate, or choose another: slipway models rollback {self.model} VERSION"
                )
                figures["champion_version"] = champion.version
                outcomes |= {name: checks.not_reached(str(error)) for name in checks.CHECKS if name not in outcomes}
        check_figures = {
            name: {**outcome.figures, **({"note": outcome.note} if outcome.note else {})}
            for name, outcome in outcomes.items()
        }
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
        version, policy = candidate.version, candidate.recipe.gate
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
        """The checks of its answers to the suite's generation tasks and of what these ask; adds to `inputs`.

        They cost the most, so nobody answers them for a candidate that has failed without them. Raises
        UnmeasurableChampion.
        """
        suite, policy = self.suites.get(candidate.recipe.suite or ""), candidate.recipe.gate
        if suite is None or suite.generation is None:
            return {checks.ANSWERS_TASKS: checks.not_needed("the suite has no generation tasks")}
        if not all(outcome.passed for outcome in outcomes.values()):
            return {checks.ANSWERS_TASKS: checks.not_reached("another check was not passed")}
        compares = champion is not None and any(task.margin is not None for task in policy.tasks.values())
        rival = Version(self.model, champion.version, champion.source, champion.tags) if champion and compares else None
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
        """Whether the data that led to the candidate gives the suite away that it is measured on."""
        recipe, documents_suite = self.suites.get(candidate.recipe.suite or ""), evaluation.suite
        if recipe is None or documents_suite is None or not isinstance(candidate.snapshot, TextSnapshot):
            return contamination.without_suite()
        policy = candidate.recipe.gate.leaks
        return self._weights(candidate, rival).of_documents(documents_suite, evaluation.examples, recipe, policy)

    def _weights(self, candidate: Candidate, rival: Promotion | None) -> contamination.TrainedWeights:
        where, own = self.tiers.durable_path, mixtures.sources_of(candidate.snapshot)
        champion = where / rival.tags[FOLDER_TAG] if rival else None
        return contamination.TrainedWeights(self.tiers, where / candidate.commit.folder, own, champion)

    def _lineage(self, candidate: Candidate) -> CheckOutcome:
        """Whether all that led to the candidate is there, and every byte of it is what was committed."""
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
        """The evaluation of a version on its training's validation split, and what describes it."""
        named = f"model {self.model}: version {version.number}"
        if not version.training:
            raise ValueError(f"{named}: it is none of our checkpoints")
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
        """The champion on the candidate's examples, in its own tokens.

        It runs as its own training says, or as the candidate's where that training is gone.
        Raises UnmeasurableChampion.
        """
        with _finding_unmeasurable(champion):
            described = read(self.tiers.durable_path, champion.tags[SNAPSHOT_TAG])
            commit = Commit(0, Token(0), champion.tags[FOLDER_TAG], champion.manifest)
            policy = self._policy_of(champion.tags.get(TRAINING_TAG, "")) or candidate.facts.run_policy
            return evaluation.measure(commit, policy, described)

    def _policy_of(self, training: str) -> RunPolicy | None:
        """The terms of a training, None when it is gone."""
        if not training or not all_trainings(self.tiers).store(training).folder.is_dir():
            return None
        return all_trainings(self.tiers).store(training).run_policy()

    def _damage(self, version: Version) -> str:
        """What is wrong with the bytes of a version; empty when all of them are what was committed."""
        commit = Commit(0, Token(0), version.tags.get(FOLDER_TAG, ""), version.manifest)
        try:
            verify(self.tiers.shared()[DURABLE], commit, lambda done, total: None)
        except DamagedCheckpoint as damage:
            return str(damage)
        return ""


class Incomparable(ValueError):
    """The champion cannot answer, or the two were asked other examples even when both were asked anew."""


@dataclass(frozen=True)
class TaskAnswers:
    """The answers of candidate and champion."""

    rivals: Mapping[str, TaskRivals]
    """By task."""
    hashes: Mapping[str, str]
    """Of what was compared."""
    questions: Mapping[str, Mapping[str, str]]
    """What was asked, by task and BLAKE3."""


def answers_of_rivals(
    generating: Generating, section: GenerationSection, candidate: Version, champion: Version | None
) -> TaskAnswers:
    """The answers to the tasks of a suite.

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
    raise Incomparable("the generation tasks ask other examples each time: see that a task draws them by a fixed seed")


def guessing_entropy(described: Snapshot, durable: Path) -> float:
    """The loss on a snapshot, in nats, of a model that knows only how frequent each token or class is."""
    if isinstance(described, ImageSnapshot):
        return class_entropy(described, durable)
    return unigram_entropy(described, durable)


@contextlib.contextmanager
def _finding_unmeasurable(champion: Promotion) -> Iterator[None]:
    """Raises UnmeasurableChampion for a champion that is none of our checkpoints, or whose snapshot is gone."""
    try:
        yield
    except KeyError as error:
        raise UnmeasurableChampion(f"it has no tag {error}") from None
    except FileNotFoundError as error:
        raise UnmeasurableChampion(f"{error.filename}: it is gone") from None
    except ValueError as error:
        raise UnmeasurableChampion(str(error)) from None


def _rivals(table: ExampleTable, champion_table: ExampleTable, own: ModelFigures, other: ModelFigures) -> Rivals:
    """The two on the same examples. Raises UnmeasurableChampion where these are others."""
    if own.unit != other.unit or len(table.losses) != len(champion_table.losses):
        raise UnmeasurableChampion(f"it is measured in {other.unit} on {other.examples} examples, the candidate in "
                                   f"{own.unit} on {own.examples}")  # fmt: skip
    losses, sizes = table.compared(own.unit)
    champion, _ = champion_table.compared(own.unit)
    return Rivals(losses, champion, sizes, table.slices())


def _figures(own: ModelFigures, weights: float) -> dict[str, float | None]:
    """What the policy's limits are about."""
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
    """What was asked and expected, by example."""
    return {row.example: (row.prompt, row.expected) for row in rows}


def _values(rows: Rows) -> dict[str, Values]:
    """The values of each metric in the order of the examples; examples that a metric lacks are none of it."""
    metrics = sorted({row.metric for row in rows})
    ordered = sorted(rows, key=lambda row: row.example)
    return {name: np.array([row.value for row in ordered if row.metric == name], np.float64) for name in metrics}


def _answer_hashes(whose: str, figures: dict[str, TaskFigures]) -> dict[str, str]:
    return {f"{whose}_answers_{task}": task_figures.table for task, task_figures in figures.items()}
