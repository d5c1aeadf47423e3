"""Models: the registered versions, which of them is the champion, and choosing another."""

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import command_context, names, output
from slipway.cli.recipes import usable
from slipway.cli.verbs import AsJson, group, verb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slipway.assets.promotion.gate import Gate
    from slipway.resources.mlflow.registry import Registry, Version
    from slipway.resources.promotions.promotion import Promotion

app = group("Registered models: list, show, promote, rollback, export, serve, ask.")

Model = Annotated[str, typer.Argument(metavar="MODEL", help="Its name, or the beginning of it.")]


@verb(app, "slipway models list", name="list")
def list_(json: AsJson = False) -> None:
    """List the registered models with their champions."""
    from slipway.resources.promotions.promotion import Promotions

    with output.progress("asking the registry"):
        context = command_context.current()
        registry = _registry(context)
        models = registry.models() if registry else []
        champions = {
            model: Promotions(registry, context.durable, model).champion_version() for model in models if registry
        }
    if json:
        return output.print_json([{"model": model, "champion": champion} for model, champion in champions.items()])
    output.print_table(
        ("model", "champion", "training", "measured"),
        [
            (model, champion.number, champion.tags.get("slipway.training", "-"), _measured(champion.tags))
            if champion
            else (model, "-", "-", "-")
            for model, champion in champions.items()
        ],
    )
    if not champions:
        output.note("no model has been registered yet")


@verb(app, "slipway models show slipway-tiny")
def show(
    model: Model,
    json: AsJson = False,
) -> None:
    """Show the versions of a model, and every promotion.

    Of each version that is not the champion, why.
    """
    from slipway.resources.mlflow.registry import CHAMPION
    from slipway.resources.promotions.promotion import Promotions

    context = command_context.current()
    name = _name(context, model)
    with output.progress("asking the registry"):
        registry = _registry(context)
        assert registry is not None
        promotions = Promotions(registry, context.durable, name)
        promoted = promotions.history()
        champion = promotions.champion_version()
        pointed = registry.aliased(name, CHAMPION)
        versions = [version for version in registry.versions() if version.model == name]
    versions.sort(key=lambda entry: int(entry.number))
    standings = {entry.number: _outcome(context, entry, promoted) for entry in versions if entry != champion}
    if json:
        document = {"champion": champion, "versions": versions, "standings": standings, "promotions": promoted}
        return output.print_json({"model": name, **document})
    print(f"{name}: champion {f'version {champion.number}' if champion else 'none yet'}")
    for number, outcome in standings.items():
        print(f"version {number} {outcome}")
    for version in versions:
        print(f"\nversion {version.number}")
        output.print_fields({**dict(sorted(version.tags.items())), "source": version.source})
    for promotion in promoted:
        why = f", because {promotion.why}" if promotion.why else ""
        print(f"\n{output.when(promotion.at)}: {_sentence(promotion)}, by {promotion.by}{why}")
    if pointed != champion:
        where = f"to version {pointed.number}" if pointed else "away"
        truth = f"version {champion.number} was promoted last" if champion else "by the promotions there is no champion"
        output.note(f"{name}: the alias was moved {where} in MLflow; {truth}")


@verb(app, "slipway models promote slipway-tiny 3", changes=True)
def promote(
    model: Model,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="The version that is to be the champion.")],
    why: Annotated[str, typer.Option(metavar="WORDS", help="The reason, for the record.")] = "asked by hand",
    json: AsJson = False,
) -> None:
    """Make a version the champion, if it passes its checks.

    It is compared with the champion of now, and judged again where that is another one than before.
    """
    with output.progress("asking the registry"):
        gate = gate_of(model)
        registered = version_of(gate, version)
    with output.progress(f"judging version {version}"):
        promotion = gate.promote(registered, command_context.actor(), why)
    output.print_json(promotion) if json else print(f"{promotion.model}: {_sentence(promotion)}")


@verb(app, "slipway models rollback slipway-tiny --why 'it repeats itself'", changes=True)
def rollback(
    model: Model,
    version: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", help="A former champion; by default the one before.")
    ] = None,
    although_lost: Annotated[
        bool, typer.Option("--although-lost", help="Go on without the records of promotions that are lost for good.")
    ] = False,
    why: Annotated[str, typer.Option(metavar="WORDS", help="The reason, for the record.")] = "asked by hand",
    json: AsJson = False,
) -> None:
    """Make a former champion the champion again.

    Its bytes must be what was committed.
    """
    from slipway.resources.promotions import promotion

    if although_lost and version is None:
        raise typer.BadParameter("expected a VERSION beside --although-lost: nobody knows which one was before")
    with output.progress("asking the registry"):
        context = command_context.current()
        champion = promotion.champion(context.durable, _name(context, model)) if version is None else None
        chosen = version if version is not None else int(champion.before or 0) if champion else 0
        if version is None and not chosen:
            raise ValueError(f"model {_name(context, model)}: it has no former champion")
        gate = gate_of(model)
        registered = version_of(gate, chosen)
        if although_lost:
            gate.promotions.acknowledge_lost(command_context.actor(), why)
    with output.progress(f"verifying version {chosen}"):
        record = gate.rollback(registered, command_context.actor(), why)
    output.print_json(record) if json else print(f"{record.model}: {_sentence(record)}")


@verb(app, "slipway models demote slipway-tiny --why 'it leaks addresses'", changes=True)
def demote(
    model: Model,
    why: Annotated[str, typer.Option(metavar="WORDS", help="The reason, for the record.")] = "asked by hand",
    json: AsJson = False,
) -> None:
    """Leave a model without a champion.

    Where it is served, it stops answering. The next candidate that passes becomes champion.
    """
    from slipway.assets.serving import after_demotion
    from slipway.serving.records import ServingRecords

    gate = gate_of(model)
    champion = gate.promotions.champion()
    record = gate.promotions.demote(command_context.actor(), why)
    traffic = after_demotion(ServingRecords(gate.tiers.durable_path), gate.model, champion)
    output.print_json(record) if json else print(f"{record.model}: {_sentence(record)}{traffic}")


@verb(app, "slipway models approve slipway-tiny 3 --why 'read the samples'", changes=True)
def approve(
    model: Model,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="The version that may become the champion.")],
    refuse: Annotated[bool, typer.Option("--refuse", help="Say that it may not.")] = False,
    why: Annotated[str, typer.Option(metavar="WORDS", help="The reason, for the record.")] = "asked by hand",
) -> None:
    """Approve a version whose policy asks for a person.

    It must pass its checks all the same.
    """
    from slipway.resources.promotions import promotion_holds

    gate = gate_of(model)
    registered = version_of(gate, version)
    gate.promotions.approve(registered, promotion_holds.Approval(not refuse, command_context.actor(), why))
    print(f"{gate.model}: version {version} is {'refused' if refuse else 'approved'}")


@verb(app, "slipway models freeze slipway-tiny --why 'the launch is on Friday'", changes=True)
def freeze(
    model: Model,
    why: Annotated[str, typer.Option(metavar="WORDS", help="The reason, for the record.")] = "asked by hand",
) -> None:
    """Let no version of a model be promoted.

    A rollback is possible all the same.
    """
    from slipway.resources.promotions import promotion_holds

    gate = gate_of(model)
    record = promotion_holds.set_freeze(gate.promotions.folder, command_context.actor(), why)
    print(f"{gate.model}: frozen by {record.by}: {record.why}")


@verb(app, "slipway models thaw slipway-tiny", changes=True)
def thaw(model: Model) -> None:
    """End a freeze.

    What passed meanwhile is promoted at the next tick.
    """
    gate = gate_of(model)
    gate.promotions.thaw(command_context.actor())
    print(f"{gate.model}: it may be promoted again")


@verb(app, "slipway models card slipway-tiny 3")
def card(
    model: Model,
    version: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", help="The version; by default the champion.")
    ] = None,
) -> None:
    """Print the model card of a version.

    All that is on record about it, and what is not known.
    """
    from slipway.assets import model_card as cards
    from slipway.resources.promotions import model_record

    gate = gate_of(model)
    champion = gate.promotions.champion()
    if version is None and champion is None:
        raise ValueError(f"model {gate.model}: it has no champion: name a version")
    registered = version_of(gate, version or int(champion.version if champion else 0))
    record = model_record.read(gate.tiers.durable_path, gate.model, registered.manifest)
    if record is None:
        raise ValueError(f"model {gate.model}: version {registered.number} has no record: materialise its candidate")
    known = [promotion for promotion in gate.promotions.history() if promotion.manifest == registered.manifest]
    print(cards.of(record, gate.promotions.judged(registered.manifest), known), end="")


def _sentence(promotion: "Promotion") -> str:
    if not promotion.version and promotion.before is None:
        return "what was decided is not known"
    if not promotion.version:
        return f"version {promotion.before} is the champion no more"
    after = f", after version {promotion.before}" if promotion.before else ""
    return f"version {promotion.version} became champion{after}"


def chosen(model: str, version: int | None) -> "Version":
    """The version of this number, or else the champion, of the model that a name means. Raises ValueError."""
    from slipway.assets.serving import champion_of

    if version is not None:
        return version_of(gate_of(model), version)
    context = command_context.current()
    name = _name(context, model)
    champion = champion_of(context.tiers, name)
    if champion is None:
        raise ValueError(f"model {name}: it has no champion; give a VERSION, or promote one: slipway models promote")
    return champion


def gate_of(model: str) -> "Gate":
    """What promotes the versions of the model that a name means. Raises ValueError."""
    context = command_context.current()
    name = _name(context, model)

    from slipway.assets.measurement import Measuring
    from slipway.assets.promotion.gate import Gate

    recipes = usable()
    measuring = Measuring(context.tiers, context.compute, output.note)
    return Gate(measuring, context.tracking, name, recipes.trainings, recipes.suites)


def version_of(gate: "Gate", number: int) -> "Version":
    """The version of the gate's model with this number. Raises ValueError that lists those that there are."""
    version = gate.registry.version(gate.model, number)
    if version is None:
        known = gate.registry.numbers(gate.model)
        expected = (
            f"expected one of {names.listed([str(existing) for existing in known])}" if known else "and it has none"
        )
        raise ValueError(f"model {gate.model}: found no version {number}, {expected}")
    return version


def _outcome(context: command_context.CommandContext, version: "Version", promoted: "Sequence[Promotion]") -> str:
    """What became of a version that is not the champion."""
    from slipway.assets.promotion import policy_checks
    from slipway.resources.promotions.promotion import held_back, judged

    judgement = judged(context.durable, version.model, version.manifest)
    rival = judgement.champion if judgement else ""
    compared = next((promotion for promotion in reversed(promoted) if rival and promotion.manifest == rival), None)
    return policy_checks.version_outcome(judgement, compared, held_back(context.durable, version.manifest))


def _measured(tags: "Mapping[str, str]") -> str:
    """The figure that ranks a version: bits per byte, or the loss of one that codes no text."""
    bits, loss = (float(tags.get(f"slipway.{name}", "0")) for name in ("bits_per_byte", "loss"))
    return f"{bits:.4g} bits per byte" if bits else f"loss {loss:.4g}" if loss else "-"


def _name(context: command_context.CommandContext, model: str) -> str:
    """The registered model that a name means. Raises ValueError that lists those that there are.

    Each has a folder on the durable tier from its registration on: a wrong name is refused before anything slow is
    imported or asked.
    """
    from slipway.resources.promotions import promotion

    known = promotion.models(context.durable) if _has_registry(context) else []
    try:
        return names.resolved(model, known, "model")
    except ValueError:
        if model in _models_of_recipes():
            raise ValueError(
                f"model {model}: no version of it is registered yet; the best checkpoint of a training is, once the "
                "training has ended and all its checkpoints are evaluated: slipway ls"
            ) from None
        raise


def _models_of_recipes() -> set[str]:
    """The models to which the recipes here lead; none where these cannot be read."""
    from slipway.recipes.load import load, recipes_folder
    from slipway.recipes.problems import InvalidRecipes

    with contextlib.suppress(InvalidRecipes, OSError):
        return {recipe.registered_model for recipe in load(recipes_folder()).trainings.values()}
    return set()


def _registry(context: command_context.CommandContext) -> "Registry | None":
    """The registry; None in a home where nothing has been tracked yet, so that looking there makes no database."""
    from slipway.resources.mlflow.registry import Registry

    return Registry(context.tracking, context.durable) if _has_registry(context) else None


def _has_registry(context: command_context.CommandContext) -> bool:
    return context.home is None or (context.home.root / "mlflow.db").exists()
