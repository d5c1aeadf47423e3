"""Models: the registered versions, which of them is the champion, and choosing another."""

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import context, names, output
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
        here = context.here()
        registry = _registry(here)
        models = registry.models() if registry else []
        champions = {
            model: Promotions(registry, here.durable, model).champion_version() for model in models if registry
        }
    if json:
        return output.print_json([{"model": model, "champion": held} for model, held in champions.items()])
    output.print_table(
        ("model", "champion", "training", "measured"),
        [
            (model, held.number, held.tags.get("slipway.training", "-"), _measured(held.tags))
            if held
            else (model, "-", "-", "-")
            for model, held in champions.items()
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

    here = context.here()
    name = _name(here, model)
    with output.progress("asking the registry"):
        registry = _registry(here)
        assert registry is not None
        promotions = Promotions(registry, here.durable, name)
        promoted, champion, pointed = (
            promotions.history(),
            promotions.champion_version(),
            registry.aliased(name, CHAMPION),
        )
        versions = [version for version in registry.versions() if version.model == name]
    versions.sort(key=lambda each: int(each.number))
    standings = {each.number: _standing(here, each, promoted) for each in versions if each != champion}
    if json:
        shown = {"champion": champion, "versions": versions, "standings": standings, "promotions": promoted}
        return output.print_json({"model": name, **shown})
    print(f"{name}: champion {f'version {champion.number}' if champion else 'none yet'}")
    for number, words in standings.items():
        print(f"version {number} {words}")
    for version in versions:
        print(f"\nversion {version.number}")
        output.print_fields({**dict(sorted(version.tags.items())), "source": version.source})
    for each in promoted:
        why = f", because {each.why}" if each.why else ""
        print(f"\n{output.when(each.at)}: {_sentence(each)}, by {each.by}{why}")
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
        found = version_of(gate, version)
    with output.progress(f"judging version {version}"):
        made = gate.promote(found, context.who(), why)
    output.print_json(made) if json else print(f"{made.model}: {_sentence(made)}")


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
        here = context.here()
        held = promotion.champion(here.durable, _name(here, model)) if version is None else None
        chosen = version if version is not None else int(held.before or 0) if held else 0
        if version is None and not chosen:
            raise ValueError(f"model {_name(here, model)}: it has no former champion")
        gate = gate_of(model)
        found = version_of(gate, chosen)
        if although_lost:
            gate.promotions.acknowledge_lost(context.who(), why)
    with output.progress(f"verifying version {chosen}"):
        made = gate.rollback(found, context.who(), why)
    output.print_json(made) if json else print(f"{made.model}: {_sentence(made)}")


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
    held = gate.promotions.champion()
    made = gate.promotions.demote(context.who(), why)
    traffic = after_demotion(ServingRecords(gate.tiers.durable_path), gate.model, held)
    output.print_json(made) if json else print(f"{made.model}: {_sentence(made)}{traffic}")


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
    found = version_of(gate, version)
    gate.promotions.approve(found, promotion_holds.Approval(not refuse, context.who(), why))
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
    held = promotion_holds.set_freeze(gate.promotions.folder, context.who(), why)
    print(f"{gate.model}: frozen by {held.by}: {held.why}")


@verb(app, "slipway models thaw slipway-tiny", changes=True)
def thaw(model: Model) -> None:
    """End a freeze.

    What passed meanwhile is promoted at the next tick.
    """
    gate = gate_of(model)
    gate.promotions.thaw(context.who())
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
    held = gate.promotions.champion()
    if version is None and held is None:
        raise ValueError(f"model {gate.model}: it has no champion: name a version")
    found = version_of(gate, version or int(held.version if held else 0))
    made = model_record.read(gate.tiers.durable_path, gate.model, found.manifest)
    if made is None:
        raise ValueError(f"model {gate.model}: version {found.number} has no record: materialise its candidate")
    known = [each for each in gate.promotions.history() if each.manifest == found.manifest]
    print(cards.of(made, gate.promotions.judged(found.manifest), known), end="")


def _sentence(made: "Promotion") -> str:
    if not made.version and made.before is None:
        return "what was decided is not known"
    if not made.version:
        return f"version {made.before} is the champion no more"
    return f"version {made.version} became champion{f', after version {made.before}' if made.before else ''}"


def chosen(model: str, version: int | None) -> "Version":
    """The version of this number, or else the champion, of the model that a name means. Raises ValueError."""
    from slipway.assets.serving import champion_of

    if version is not None:
        return version_of(gate_of(model), version)
    here = context.here()
    name = _name(here, model)
    held = champion_of(here.tiers, name)
    if held is None:
        raise ValueError(f"model {name}: it has no champion; give a VERSION, or promote one: slipway models promote")
    return held


def gate_of(model: str) -> "Gate":
    """What promotes the versions of the model that a name means. Raises ValueError."""
    here = context.here()
    name = _name(here, model)

    from slipway.assets.measurement import Measuring
    from slipway.assets.promotion.gate import Gate

    recipes = usable()
    measuring = Measuring(here.tiers, here.compute, output.note)
    return Gate(measuring, here.tracking, name, recipes.trainings, recipes.suites)


def version_of(gate: "Gate", number: int) -> "Version":
    """The version of the gate's model with this number. Raises ValueError that lists those that there are."""
    found = gate.registry.version(gate.model, number)
    if found is None:
        known = gate.registry.numbers(gate.model)
        expected = f"expected one of {names.listed([str(each) for each in known])}" if known else "and it has none"
        raise ValueError(f"model {gate.model}: found no version {number}, {expected}")
    return found


def _standing(here: context.Workplace, version: "Version", promoted: "Sequence[Promotion]") -> str:
    """What became of a version that is not the champion."""
    from slipway.assets.promotion import policy_checks
    from slipway.resources.promotions.promotion import held_back, judged

    judgement = judged(here.durable, version.model, version.manifest)
    rival = judgement.champion if judgement else ""
    compared = next((each for each in reversed(promoted) if rival and each.manifest == rival), None)
    return policy_checks.version_outcome(judgement, compared, held_back(here.durable, version.manifest))


def _measured(tags: "Mapping[str, str]") -> str:
    """The figure that ranks a version: bits per byte, or the loss of one that codes no text."""
    bits, loss = (float(tags.get(f"slipway.{name}", "0")) for name in ("bits_per_byte", "loss"))
    return f"{bits:.4g} bits per byte" if bits else f"loss {loss:.4g}" if loss else "-"


def _name(here: context.Workplace, model: str) -> str:
    """The registered model that a name means. Raises ValueError that lists those that there are.

    Each has a folder on the durable tier from its registration on: a wrong name is refused before anything slow is
    imported or asked.
    """
    from slipway.resources.promotions import promotion

    known = promotion.models(here.durable) if _has_registry(here) else []
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
        return {each.registered_model for each in load(recipes_folder()).trainings.values()}
    return set()


def _registry(here: context.Workplace) -> "Registry | None":
    """The registry; None in a home where nothing has been tracked yet, so that looking there makes no database."""
    from slipway.resources.mlflow.registry import Registry

    return Registry(here.tracking, here.durable) if _has_registry(here) else None


def _has_registry(here: context.Workplace) -> bool:
    return here.home is None or (here.home.root / "mlflow.db").exists()
