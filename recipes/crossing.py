"""Checks between recipes: the dataset of a training exists and fits its model, and a sweep fits its training."""

from collections.abc import Iterator, Set

from recipes.asking import memory_faults
from recipes.dataset import DatasetRecipe
from recipes.problems import RecipeFault, dotted, shown
from recipes.strict import RefusedValue
from recipes.sweep import Domain, SweepRecipe
from recipes.training import ModelRecipe, TrainingRecipe, with_parameters
from trainer.base.invalid import Invalid
from trainer.config import evaluating, layout
from trainer.config.shapes import Data
from trainer.data import contents

FIXED = ("run.steps", "validation.every")
"""Parameters that the rungs of a sweep decide, so that no trial may draw them."""


def training_faults(
    training: TrainingRecipe, datasets: Set[str], dataset: DatasetRecipe | None
) -> Iterator[RecipeFault]:
    """The faults of a training, given the names of all datasets and its own dataset (None if it is not usable)."""
    if training.dataset not in datasets:
        yield _unknown_name("dataset", training.dataset, datasets)
    if not isinstance(training, ModelRecipe):
        return
    if dataset is not None:
        yield from _content_faults(training, dataset)
    unfit = list(layout_faults(training))
    yield from unfit
    if dataset is not None and not unfit:
        yield from memory_faults(training, dataset)
    yield from _evaluation_faults(training)


def _evaluation_faults(training: ModelRecipe) -> Iterator[RecipeFault]:
    """The fault of a section `evaluation` whose ranks the placement does not have, or that do not divide the model."""
    numbers, nodes = training.numbers_alone(), training.placement.nodes.max
    try:
        next(evaluating.fitting(numbers, training.evaluation, nodes, training.placement.ranks_per_node))
    except layout.UnfitLayout as unfit:
        yield RecipeFault(tuple(unfit.field.split(".")), unfit.found, unfit.expected)


def layout_faults(training: ModelRecipe) -> Iterator[RecipeFault]:
    """The fault of the layout at the smallest number of nodes that it does not fit, of those the training may have."""
    nodes, each = training.placement.nodes, training.placement.ranks_per_node
    for count in range(nodes.min, nodes.max + 1):
        try:
            layout.check(training, count * each, each)
        except layout.UnfitLayout as unfit:
            yield RecipeFault(tuple(unfit.field.split(".")), unfit.found, f"{unfit.expected}, with nodes: {count}")
            return


def _content_faults(training: ModelRecipe, dataset: DatasetRecipe) -> Iterator[RecipeFault]:
    """The fault of a model that does not fit the content of the dataset."""
    pictures = dataset.images
    size = (pictures.height, pictures.width, pictures.channels) if pictures else (0, 0, 0)
    try:
        contents.check(training.model, Data(length=training.batch.length, picture=size))
    except Invalid as fault:
        section, field = fault.field.split(".")
        found = shown(getattr(getattr(training, section), field))
        yield RecipeFault((section, field), found, str(fault).removeprefix("expected "))


def sweep_faults(sweep: SweepRecipe, trainings: Set[str], training: ModelRecipe | None) -> Iterator[RecipeFault]:
    """The faults of a sweep, given the names of all trainings and the sweep's training (None if it is not usable)."""
    if sweep.training not in trainings:
        yield _unknown_name("training", sweep.training, trainings)
    if training is None:
        return
    if training.init is not None and (alias := training.init.moving_alias):
        expected = "a training whose init names a version, because an alias may move while the sweep runs"
        yield RecipeFault(("training",), f"a training that starts from the alias {alias}", expected)
    try:
        trial = sweep.trial_of(training)
    except RefusedValue as refused:
        yield from (_fault_of_trial(fault, sweep) for fault in refused.faults)
        trial = training
    else:
        yield from _rung_faults(sweep, trial)
        if not any(layout_faults(training)):  # else the training is reported
            yield from _placement_faults(sweep, trial)
    for parameter, domain in sweep.space.items():
        yield from _domain_faults(parameter, domain, sweep, trial)


def _unknown_name(kind: str, name: str, known: Set[str]) -> RecipeFault:
    return RecipeFault(
        (kind,), shown(name), f"the name of a {kind} recipe ({', '.join(sorted(known)) or 'there is none'})"
    )


def _fault_of_trial(fault: RecipeFault, sweep: SweepRecipe) -> RecipeFault:
    """A fault of the trial's training, placed at the parameter under `trial` that causes it."""
    parameter = dotted(fault.path)
    if parameter in sweep.trial:
        return RecipeFault(("trial", parameter), fault.found, fault.expected)
    return RecipeFault(
        ("trial",), f"parameters that {parameter} ({fault.found}) does not fit", f"{fault.expected} there"
    )


def _placement_faults(sweep: SweepRecipe, trial: ModelRecipe) -> Iterator[RecipeFault]:
    """The faults of where a trial runs: ranks that its layout does not fit, and GPUs that no rank has."""
    for fault in layout_faults(trial):
        found = f"nodes and ranks that {dotted(fault.path)} ({fault.found}) does not fit"
        yield RecipeFault(("placement",), found, fault.expected)
    ranks = trial.placement.ranks_per_node
    for name, amount in (trial.placement.kubernetes.resources or {}).items():
        if sweep.placement.ranks_per_node is not None and name.endswith("/gpu") and amount != str(ranks):
            found = f"{ranks} for pods with {name} {amount}"
            expected = f'a rank for each GPU; placement.kubernetes.resources gives a trial fewer: {name}: "{ranks}"'
            yield RecipeFault(("placement", "ranks_per_node"), found, expected)


def _rung_faults(sweep: SweepRecipe, trial: ModelRecipe) -> Iterator[RecipeFault]:
    steps, every, rungs = trial.run.steps, trial.validation.every, sweep.halving.rungs
    if rungs[-1] != steps:
        yield RecipeFault(("halving", "rungs"), shown(rungs), f"the last to be run.steps of a trial ({steps})")
    if every == 0:
        yield RecipeFault(
            ("trial", "validation.every"), "0", "a number that divides every rung, where trials are compared"
        )
        return
    for index, rung in enumerate(rungs):
        if rung % every:
            yield RecipeFault(
                ("halving", "rungs", index), str(rung), f"a multiple of validation.every of a trial ({every})"
            )


def _domain_faults(parameter: str, domain: Domain, sweep: SweepRecipe, trial: ModelRecipe) -> Iterator[RecipeFault]:
    """The faults of one parameter's domain: the ends or choices that a trial would not accept."""
    if parameter in FIXED:
        yield RecipeFault(
            ("space", parameter), "a parameter that the rungs decide", f"a parameter other than {', '.join(FIXED)}"
        )
        return
    if parameter in sweep.trial:
        yield RecipeFault(("space", parameter), "a parameter that `trial` sets too", "it in only one of the two")
    for index, value in enumerate(domain.values):
        try:
            with_parameters(trial, {parameter: value})
        except RefusedValue as refused:
            fault = refused.faults[0]
            if fault.found == "an unknown parameter":
                yield RecipeFault(("space", parameter), fault.found, fault.expected)
                return
            yield RecipeFault(("space", parameter, domain.kind, index), shown(value), _expected(fault, parameter))


def _expected(fault: RecipeFault, parameter: str) -> str:
    """What is expected of `parameter`, also when the fault names another field."""
    at = dotted(fault.path)
    return fault.expected if at == parameter else f"a value that {at} ({fault.found}) fits: {fault.expected} there"
