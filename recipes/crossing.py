"""What recipes say of one another: that a training's dataset is there, and that a sweep fits its training."""

from collections.abc import Iterator, Set

from recipes.dataset import Dataset
from recipes.problems import Fault, dotted, shown
from recipes.schema import Domain, Sweep, Training, TrainingRecipe, with_parameters
from recipes.strict import Refused
from trainer import contents, layout
from trainer.invalid import Invalid
from trainer.shapes import Data

FIXED = ("run.steps", "validation.every")
"""Parameters that the rungs of a sweep decide, so that no trial may draw them."""


def training_faults(training: TrainingRecipe, datasets: Set[str], dataset: Dataset | None) -> Iterator[Fault]:
    """What is wrong with a training, given the names of all datasets and its own (None if that is not usable)."""
    if training.dataset not in datasets:
        yield _missing("dataset", training.dataset, datasets)
    if not isinstance(training, Training):
        return
    if dataset is not None:
        yield from _content_faults(training, dataset)
    yield from _layout_faults(training)


def _layout_faults(training: Training) -> Iterator[Fault]:
    """What does not fit the first number of nodes, of those that the training may have, at which something does not."""
    nodes, each = training.placement.nodes, training.placement.ranks_per_node
    for count in range(nodes.min, nodes.max + 1):
        try:
            layout.check(training, count * each, each)
        except layout.Unfit as unfit:
            yield Fault(tuple(unfit.field.split(".")), unfit.found, f"{unfit.expected}, with nodes: {count}")
            return


def _content_faults(training: Training, dataset: Dataset) -> Iterator[Fault]:
    """What is wrong with a model for what the dataset holds."""
    pictures = dataset.images
    size = (pictures.height, pictures.width, pictures.channels) if pictures else (0, 0, 0)
    try:
        contents.check(training.model, Data(length=training.batch.length, picture=size))
    except Invalid as fault:
        section, field = fault.field.split(".")
        found = shown(getattr(getattr(training, section), field))
        yield Fault((section, field), found, str(fault).removeprefix("expected "))


def sweep_faults(sweep: Sweep, trainings: Set[str], training: Training | None) -> Iterator[Fault]:
    """What is wrong with a sweep, given the names of all trainings and its own (None if that is not usable)."""
    if sweep.training not in trainings:
        yield _missing("training", sweep.training, trainings)
    if training is None:
        return
    if training.init is not None and (alias := training.init.moving_alias):
        expected = "a training whose init names a version: an alias may move while the sweep runs"
        yield Fault(("training",), f"one that starts from alias {alias}", expected)
    try:
        trial = with_parameters(training, sweep.trial)
    except Refused as refused:
        yield from (_moved(fault, sweep) for fault in refused.faults)
        trial = training
    else:
        yield from _rung_faults(sweep, trial)
    for parameter, domain in sweep.space.items():
        yield from _domain_faults(parameter, domain, sweep, trial)


def _missing(kind: str, name: str, known: Set[str]) -> Fault:
    return Fault((kind,), shown(name), f"the name of a {kind} recipe ({', '.join(sorted(known)) or 'there is none'})")


def _moved(fault: Fault, sweep: Sweep) -> Fault:
    """A fault of the training that a trial would be, at the parameter under `trial` that causes it."""
    parameter = dotted(fault.path)
    if parameter in sweep.trial:
        return Fault(("trial", parameter), fault.found, fault.expected)
    return Fault(("trial",), f"parameters that {parameter} ({fault.found}) does not fit", f"{fault.expected} there")


def _rung_faults(sweep: Sweep, trial: Training) -> Iterator[Fault]:
    steps, every, rungs = trial.run.steps, trial.validation.every, sweep.halving.rungs
    if rungs[-1] != steps:
        yield Fault(("halving", "rungs"), shown(rungs), f"the last to be run.steps of a trial ({steps})")
    if every == 0:
        yield Fault(("trial", "validation.every"), "0", "a number that divides every rung, where trials are compared")
        return
    for index, rung in enumerate(rungs):
        if rung % every:
            yield Fault(("halving", "rungs", index), str(rung), f"a multiple of validation.every of a trial ({every})")


def _domain_faults(parameter: str, domain: Domain, sweep: Sweep, trial: Training) -> Iterator[Fault]:
    """What a trial would refuse of one parameter's domain: its ends, or any of its choices."""
    if parameter in FIXED:
        yield Fault(("space", parameter), "a parameter that the rungs decide", f"one other than {', '.join(FIXED)}")
        return
    if parameter in sweep.trial:
        yield Fault(("space", parameter), "a parameter that trial sets", "it in one of the two")
    for index, value in enumerate(domain.values):
        try:
            with_parameters(trial, {parameter: value})
        except Refused as refused:
            fault = refused.faults[0]
            if fault.found == "an unknown parameter":
                yield Fault(("space", parameter), fault.found, fault.expected)
                return
            yield Fault(("space", parameter, domain.kind, index), shown(value), _wanted(fault, parameter))


def _wanted(fault: Fault, parameter: str) -> str:
    """What is expected of `parameter`, where it may be another field that the fault names."""
    at = dotted(fault.path)
    return fault.expected if at == parameter else f"a value that {at} ({fault.found}) fits: {fault.expected} there"
