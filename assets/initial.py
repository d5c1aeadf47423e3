"""Locates the initial weights of a recipe: their folder and the digest that they must have.

This happens before a training is proposed, so that its id covers the weights, and weights that do not fit are reported
before anything runs. An alias is resolved at that moment, and the training keeps the resolved version.
"""

from pathlib import Path
from typing import TypeVar

from slipway.assets.datasets.texts import tokenizer
from slipway.recipes.initial import InitSection
from slipway.recipes.training import ModelRecipe, TrainingRecipe
from slipway.resources.mlflow.registry import CHAMPION, FOLDER_TAG, MANIFEST_TAG, Registry, Version
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions.promotion import Promotions
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import all_trainings
from slipway.trainer.base import regular_file
from slipway.trainer.data import contents, snapshots, vocabulary
from slipway.trainer.data.shards import TokenizerRecord
from slipway.trainer.start import huggingface, initial

Recipe = TypeVar("Recipe", bound=TrainingRecipe)


def with_initial_weights(recipe: Recipe, snapshot: str, tiers: Tiers, tracking: Tracking) -> Recipe:
    """`recipe` with the folder and the digest of its initial weights; unchanged if it initialises them at random.

    Raises ValueError for weights that do not exist, have another digest than the recipe says, or do not fit the
    recipe's model or the snapshot's vocabulary, with the numbers that do not fit.
    """
    if not isinstance(recipe, ModelRecipe) or recipe.init is None:
        return recipe
    try:
        init = _located(recipe.init, tiers, tracking)
        described_snapshot = snapshots.read(tiers.durable_path, snapshot)
        described = contents.tokenizer(described_snapshot)
        data = contents.data(described_snapshot, recipe.model, recipe.batch.length)
        initial.check_fit(init.layout, Path(init.folder), recipe.model, described, data)
        if init.layout == "huggingface" and described is not None:
            _check_tokenizer(Path(init.folder), described, tiers)
    except ValueError as error:
        raise ValueError(f"training {recipe.name}: init: {error}") from error
    return recipe.model_copy(update={"init": init})


def _located(init: InitSection, tiers: Tiers, tracking: Tracking) -> InitSection:
    """`init` with its source resolved to a folder and a digest."""
    if init.model is not None:
        folder, recorded = _registered(init, init.model, tiers, tracking)
    elif init.checkpoint is not None and not init.checkpoint.startswith("/"):
        folder, recorded = _committed(init.checkpoint, tiers)
    else:
        folder = Path(init.folder)
        recorded = None
    actual = initial.digest_of(init.layout, folder)
    for expected in (recorded, init.digest):
        if expected not in (None, actual):
            raise ValueError(f"{folder}: found the digest {actual}, expected {expected}")
    return InitSection.model_validate({init.layout: str(folder), "digest": actual})


def _registered(init: InitSection, model: str, tiers: Tiers, tracking: Tracking) -> tuple[Path, str | None]:
    """The folder and the manifest of a registered version."""
    from mlflow.exceptions import MlflowException

    registry = Registry(tracking, tiers.durable_path)
    alias = init.moving_alias
    named = f"alias {alias}" if alias else f"version {init.version}"
    try:
        known = registry.models()
        version = _version_of(init, model, registry, tiers) if model in known else None
    except MlflowException as error:
        raise ValueError(f"model {model}: the registry cannot be asked: {error}") from error
    if model not in known:
        raise ValueError(f"found no registered model {model}, expected one of {', '.join(known) or '(there is none)'}")
    if version is None or not {FOLDER_TAG, MANIFEST_TAG} <= set(version.tags):
        raise ValueError(f"model {model}: found no {named}, expected a version that Slipway registered")
    return tiers.durable_path / version.tags[FOLDER_TAG], version.tags[MANIFEST_TAG]


def _version_of(init: InitSection, model: str, registry: Registry, tiers: Tiers) -> Version | None:
    """The version that `init` names. The champion is the last promoted version, even if MLflow's alias was moved."""
    if init.version is not None:
        return registry.version(model, init.version)
    if init.moving_alias == CHAMPION:
        return Promotions(registry, tiers.durable_path, model).champion_version()
    return registry.aliased(model, init.moving_alias or CHAMPION)


def _committed(checkpoint: str, tiers: Tiers) -> tuple[Path, str | None]:
    """The folder and the manifest of `<training>/<step>`."""
    training, step = checkpoint.split("/")
    commits = {commit.step: commit for commit in all_trainings(tiers).store(training).commits()}
    if int(step) not in commits:
        there = ", ".join(map(str, commits)) or "none"
        raise ValueError(f"found no checkpoint {checkpoint}, expected one of the steps of {training}: {there}")
    commit = commits[int(step)]
    return tiers.durable_path / commit.folder, commit.manifest


def _check_tokenizer(folder: Path, described: TokenizerRecord, tiers: Tiers) -> None:
    """Raises ValueError if the model has a tokenizer with other ids than the snapshot's."""
    path = folder / huggingface.TOKENIZER
    if not path.exists():
        return
    fault = vocabulary.difference(regular_file.read(path), tokenizer.read(tiers.durable_path, described.sha256))
    if fault:
        raise ValueError(f"{path}: the tokenizer differs from the snapshot's: {fault}")
