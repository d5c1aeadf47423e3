"""Checks between recipes: a training's dataset exists and fits its model. `sweep_faults` has the checks of sweeps."""

from collections.abc import Iterator, Mapping, Set

from slipway.recipes.asset_prefix import lane
from slipway.recipes.dataset import DatasetRecipe
from slipway.recipes.plan_request import memory_faults
from slipway.recipes.problems import Path, RecipeFault, format_value
from slipway.recipes.suite import SuiteRecipe
from slipway.recipes.training import ModelRecipe, TrainingRecipe, layout_faults
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import evaluating, layout
from slipway.trainer.config.shapes import Data
from slipway.trainer.data import contents


def training_faults(
    training: TrainingRecipe, names: Set[str], datasets: Mapping[str, DatasetRecipe]
) -> Iterator[RecipeFault]:
    """The faults of a training, given the names of all datasets and the usable datasets."""
    if training.dataset is not None and training.dataset not in names:
        yield _unknown_name("dataset", training.dataset, names)
    if not isinstance(training, ModelRecipe):
        return
    own = {name: datasets[name] for name in training.datasets if name in datasets}
    yield from _mix_faults(training, names, own)
    for dataset in own.values():
        faults = list(_content_faults(training, dataset))
        if faults:
            yield from faults
            break
    unfit = list(layout_faults(training))
    yield from unfit
    if own and not unfit:
        yield from memory_faults(training, next(iter(own.values())))
    yield from _evaluation_faults(training)


def model_name_faults(trainings: Mapping[str, ModelRecipe]) -> Iterator[tuple[str, RecipeFault]]:
    """Faults of registered models with different names that have the same asset prefix, each with its training.

    Several trainings may lead to one registered model, but only under the same name.
    """
    first: dict[str, ModelRecipe] = {}
    for name, training in trainings.items():
        namesake = first.setdefault(lane(training.registered_model), training)
        if namesake.registered_model != training.registered_model:
            same = f"{namesake.registered_model}, as in trainings/{namesake.name}.yaml"
            expected = f"{same}, or a name that differs from it in a letter or digit"
            yield name, RecipeFault(("registered_model",), format_value(training.registered_model), expected)


def _mix_faults(training: ModelRecipe, names: Set[str], own: Mapping[str, DatasetRecipe]) -> Iterator[RecipeFault]:
    """The faults of a mix: unknown datasets, datasets of pictures, and several datasets that train tokenizers."""
    if training.mix is None:
        return
    weights_by_path: list[tuple[Path, Mapping[str, float]]] = [(("mix", "weights"), training.mix.weights)]
    weights_by_path += [
        (("mix", "phases", phase_index, "weights"), mix_phase.weights)
        for phase_index, mix_phase in enumerate(training.mix.phases)
    ]
    for path, weights in weights_by_path:
        for name in weights:
            if name not in names:
                known = ", ".join(sorted(names)) or "there is none"
                yield RecipeFault((*path, name), format_value(name), f"the name of a dataset recipe ({known})")
    pictures = [name for name, dataset in own.items() if dataset.images]
    if pictures:
        yield RecipeFault(("mix",), f"pictures in dataset {pictures[0]}", "datasets of texts: a mix is of texts")
        return
    trained = [name for name, dataset in own.items() if dataset.tokenizer.file is None]
    if len(trained) > 1:
        actual = f"datasets {trained[0]} and {trained[1]}, each of which trains a tokenizer of its own"
        yield RecipeFault(("mix",), actual, "one tokenizer: the same tokenizer.file in the recipes of all of them")


def suite_faults(suite: SuiteRecipe, datasets: Set[str], dataset: DatasetRecipe | None) -> Iterator[RecipeFault]:
    """The faults of a suite, given the names of all datasets and its own dataset (None if it is not usable)."""
    if suite.dataset not in datasets:
        yield _unknown_name("dataset", suite.dataset, datasets)
    if dataset is not None and dataset.images is not None:
        yield RecipeFault(
            ("dataset",), format_value(suite.dataset), "a dataset of texts; pictures are compared without a suite"
        )


def gate_faults(training: TrainingRecipe, names: Set[str], suites: Mapping[str, SuiteRecipe]) -> Iterator[RecipeFault]:
    """The faults of a training's suite and gate, given the names of all suites and the usable suites."""
    if not isinstance(training, ModelRecipe):
        return
    if training.suite is not None and training.suite not in names:
        yield _unknown_name("suite", training.suite, names)
    suite = suites.get(training.suite) if training.suite else None
    for task in ("continuation", "arithmetic"):
        if task in training.gate.at_least and (training.suite is None or (suite and getattr(suite, task) is None)):
            expected = f"a task of the training's suite (field suite), where {task} is not null"
            yield RecipeFault(("gate", "at_least", task), f"the task {task}", expected)
    yield from _task_faults(training, suite)


def _task_faults(training: ModelRecipe, suite: SuiteRecipe | None) -> Iterator[RecipeFault]:
    """The faults of limits for generation tasks; `suite` is None if the training has no usable suite."""
    if training.suite is not None and suite is None:
        return
    known = suite.generation.tasks if suite and suite.generation else ()
    for task in training.gate.tasks:
        if task not in known:
            expected = f"one of generation.tasks of the training's suite: {', '.join(known) or 'it has none'}"
            yield RecipeFault(("gate", "tasks", task), f"the task {task}", expected)
    if known and training.model.kind != "decoder":
        expected = "a suite without generation: only a decoder writes texts"
        yield RecipeFault(("suite",), format_value(training.suite), expected)


def _evaluation_faults(training: ModelRecipe) -> Iterator[RecipeFault]:
    """The fault of a section `evaluation` whose ranks exceed the placement or do not divide the model."""
    numbers = training.numbers_alone()
    nodes = training.placement.nodes.max
    try:
        next(evaluating.fitting(numbers, training.evaluation, nodes, training.placement.ranks_per_node))
    except layout.UnfitLayout as unfit:
        yield RecipeFault(tuple(unfit.field.split(".")), unfit.actual, unfit.expected)


def _content_faults(training: ModelRecipe, dataset: DatasetRecipe) -> Iterator[RecipeFault]:
    """The fault of a model that does not fit the content of the dataset."""
    pictures = dataset.images
    size = (pictures.height, pictures.width, pictures.channels) if pictures else (0, 0, 0)
    try:
        contents.check(training.model, Data(length=training.batch.length, picture=size))
    except Invalid as fault:
        section, field = fault.field.split(".")
        actual = format_value(getattr(getattr(training, section), field))
        yield RecipeFault((section, field), actual, str(fault).removeprefix("expected "))


def _unknown_name(kind: str, name: str, known: Set[str]) -> RecipeFault:
    return RecipeFault(
        (kind,), format_value(name), f"the name of a {kind} recipe ({', '.join(sorted(known)) or 'there is none'})"
    )
