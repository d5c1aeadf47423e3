"""The gate: judges a registered checkpoint against the data and against the champion of now.

Two checks. It must beat the unigram entropy of the validation split (of pictures, the entropy of their classes), and
the champion, evaluated anew on the same text, in bits per byte. Where no text is coded (pictures, a model that sees
both sides) the loss is compared instead. A champion that cannot be measured is not beaten: the candidate waits for a
person. What the gate finds is the record without which `resources.mlflow.promotion` promotes nothing.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.datasets.images.snapshot import class_entropy
from assets.datasets.texts.snapshot import in_tokens_of, unigram_entropy
from assets.evaluation import evaluate
from assets.measuring import Measuring
from resources.mlflow.promotion import Judgement, NotJudged, Promotion, Promotions
from resources.mlflow.registry import FOLDER_TAG, SNAPSHOT_TAG, TRAINING_TAG, Registry, Version
from resources.mlflow.tracking import Tracking
from resources.tiers import Tiers
from resources.trainings.records import Terms
from resources.trainings.roots import trainings
from resources.trainings.verification import verify
from trainer.checkpoint.disk.reading import DamagedCheckpoint
from trainer.checkpoint.tiers.tier import DURABLE
from trainer.data import images, shards
from trainer.data.snapshots import Snapshot, read
from trainer.record.fence import Commit, Token
from trainer.record.scores import Score

BEATS_UNIGRAMS, BEATS_CHAMPION = "beats_unigram_entropy", "beats_champion"
WAS_CHAMPION, IS_WHOLE = "was_champion", "is_whole"


class UnmeasurableChampion(Exception):
    """The champion cannot be compared with; the message says why."""


@dataclass(frozen=True)
class Gate:
    """What judges the versions of one registered model, and promotes those that pass."""

    measuring: Measuring
    tracking: Tracking
    model: str

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

        Raises ValueError for a version whose training or checkpoint is gone.
        """
        score, described = self._score(version)
        entropy = _entropy(described, self.tiers.durable_path)
        held = self.promotions.champion()
        figures: dict[str, Any] = {"loss": score.loss, "unigram_entropy": entropy, "bits_per_byte": score.bits_per_byte}
        beats, undecided = held is None or held.manifest == version.manifest, ""
        if held is not None and not beats:
            figures["champion_version"] = held.version
            try:
                rival = self._measure_anew(held, version, described)
                beats = score.ranking < rival.ranking and bool(score.bits_per_byte) == bool(rival.bits_per_byte)
                figures |= {"champion_loss": rival.loss, "champion_bits_per_byte": rival.bits_per_byte}
            except UnmeasurableChampion as error:
                undecided = (
                    f"the champion, version {held.version}, cannot be compared with: {error}; mend it and "
                    f"materialise the candidate, or choose another: slipway models rollback {self.model} VERSION"
                )
        checks = {BEATS_UNIGRAMS: score.loss < entropy, BEATS_CHAMPION: beats}
        undecided = undecided if checks[BEATS_UNIGRAMS] else ""  # else it is decided all the same
        compared = held.manifest if held else ""
        return self._keep(
            Judgement(self.model, version.manifest, compared, checks, by, figures=figures, undecided=undecided)
        )

    def promote(self, version: Version, by: str, why: str) -> Promotion:
        """Promote a version that the gate lets pass, judging it again whenever another one became the champion.

        Raises NotPromoted with the reason.
        """
        while True:
            with contextlib.suppress(NotJudged):
                return self.promotions.promote(version, by, why)
            self.judge(version, by)  # each round is one in which another version was promoted

    def rollback(self, version: Version, by: str, why: str) -> Promotion:
        """Make a version the champion again whose bytes are whole. Raises NotPromoted with the reason."""
        held, known = self.promotions.champion(), self.promotions.history()
        checks = {
            WAS_CHAMPION: any(each.manifest == version.manifest for each in known),
            IS_WHOLE: self._is_whole(version),
        }
        compared, figures = held.manifest if held else "", {"why": why}
        self._keep(Judgement(self.model, version.manifest, compared, checks, by, figures=figures))
        return self.promotions.promote(version, by, why)

    def _keep(self, judgement: Judgement) -> Judgement:
        self.promotions.record(judgement)
        return judgement

    def _score(self, version: Version) -> tuple[Score, Snapshot]:
        """The evaluation of a version on its training's validation split, which is described too."""
        named = f"model {self.model}: version {version.number}"
        if not version.training:
            raise ValueError(f"{named}: it is none of our checkpoints")
        facts = trainings(self.tiers).store(version.training).read()
        commits = [commit for commit in facts.commits if commit.manifest == version.manifest]
        if not commits:
            raise ValueError(f"{named}: training {facts.id} does not have its checkpoint any more")
        [score] = evaluate(facts, commits[-1:], self.measuring)
        if score.damaged:
            raise ValueError(f"{named}: {score.damaged}")
        return score, read(self.tiers.durable_path, facts.specification.snapshot)

    def _measure_anew(self, held: Promotion, version: Version, described: Snapshot) -> Score:
        """The champion on the candidate's validation split; on its text, in the champion's own tokens.

        It runs as its own training says, or as the candidate's where that training is gone.
        Raises UnmeasurableChampion.
        """
        with _finding_unmeasurable(held):
            spoken = read(self.tiers.durable_path, held.tags[SNAPSHOT_TAG])
            if isinstance(described, shards.TextSnapshot) and isinstance(spoken, shards.TextSnapshot):
                described = in_tokens_of(described, spoken, self.tiers.durable_path)
            folder = held.tags[FOLDER_TAG]
        terms = self._terms(held.tags.get(TRAINING_TAG, "")) or self._terms(version.training)
        assert terms is not None
        commit = Commit(0, Token(0), folder, held.manifest)
        [score] = self.measuring.measure(described.sha256, [commit], terms, f"against {version.manifest}")
        if score.damaged:
            raise UnmeasurableChampion(score.damaged)
        return score

    def _terms(self, training: str) -> Terms | None:
        """The terms of a training, None when it is gone."""
        if not training or not trainings(self.tiers).store(training).folder.is_dir():
            return None
        return trainings(self.tiers).store(training).terms()

    def _is_whole(self, version: Version) -> bool:
        commit = Commit(0, Token(0), version.tags.get(FOLDER_TAG, ""), version.manifest)
        try:
            verify(self.tiers.shared()[DURABLE], commit, lambda done, whole: None)
        except DamagedCheckpoint:
            return False
        return True


@contextlib.contextmanager
def _finding_unmeasurable(held: Promotion) -> Iterator[None]:
    """Raises UnmeasurableChampion for a champion that is none of our checkpoints, or whose snapshot is gone."""
    try:
        yield
    except KeyError as error:
        raise UnmeasurableChampion(f"it has no tag {error}") from None
    except FileNotFoundError as error:
        raise UnmeasurableChampion(f"{error.filename}: it is gone") from None
    except ValueError as error:
        raise UnmeasurableChampion(str(error)) from None


def _entropy(described: Snapshot, durable: Path) -> float:
    """The loss, in nats, of a model that has only learnt how frequent each token or class is."""
    if isinstance(described, images.ImageSnapshot):
        return class_entropy(described, durable)
    return unigram_entropy(described, durable)
