"""Recipes: checking them, writing new ones, and what one comes to with all of its defaults."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import command_context, completion_names, names, output
from slipway.cli.verbs import AsJson, group, verb

if TYPE_CHECKING:
    from slipway.recipes.load import Recipes
    from slipway.recipes.problems import RecipeFault

app = group("Recipes: check, new, show.")
KINDS = ("dataset", "suite", "training", "sweep")


@verb(app, "slipway recipes check")
def check(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="A folder of recipes; by default the one in use.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Validate all recipes of a folder.

    A line for each, or every problem with its file, line and field.
    Those in use are held to the nodes of an embedded instance too.
    """
    from slipway.assets.sweeps import slots
    from slipway.recipes.load import load, recipes_folder
    from slipway.recipes.problems import InvalidRecipes

    def of_the_fleet(loaded: "Recipes") -> "Iterable[tuple[str, str, RecipeFault]]":
        return slots.faults(command_context.current().fleet, loaded)

    try:
        recipes = load(folder or recipes_folder(), further=None if folder else of_the_fleet)
    except InvalidRecipes as invalid:
        output.note(str(invalid))
        raise typer.Exit(1) from None
    known = [
        {"kind": kind, "name": name, "description": recipe.description}
        for kind, row in (
            ("datasets", recipes.datasets),
            ("suites", recipes.suites),
            ("trainings", recipes.all_trainings),
            ("sweeps", recipes.sweeps),
        )
        for name, recipe in row.items()
    ]
    if json:
        return output.print_json(known)
    for recipes_of_kind in known:
        print(f"{recipes_of_kind['kind']}/{recipes_of_kind['name']}: {recipes_of_kind['description']}")


def usable() -> "Recipes":
    """The recipes in use that can be used; the problems of the others are noted. Raises InvalidRecipes."""
    from slipway.recipes import usable as among
    from slipway.recipes.load import recipes_folder

    selection = among.usable(recipes_folder())
    for fault in selection.broken:
        output.note("\n".join((*fault.problems, f"{fault.kind}/{fault.name} cannot be used; the others can")))
    return selection.recipes


@verb(app, "slipway recipes new training my-model")
def new(
    kind: Annotated[
        str, typer.Argument(metavar="dataset|suite|training|sweep", help="What to write.", autocompletion=lambda: KINDS)
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, which is that of its file.")],
) -> None:
    """Write a new recipe, with the meaning of every field.

    The fields that have a default are comments.
    """
    from slipway.recipes import new as recipes
    from slipway.recipes.load import recipes_folder

    print(recipes.write(recipes_folder(), names.resolved(kind, KINDS, "kind of recipe"), name))


@verb(app, "slipway recipes show tiny-decoder --json")
def show(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="Its name, or the beginning of it.", autocompletion=completion_names.recipes
        ),
    ],
    kind: Annotated[str, typer.Option(help="dataset, suite, training or sweep, where several have the name.")] = "",
    json: AsJson = False,
) -> None:
    """Print a recipe with every default filled in.

    And with the overrides of the environment applied.
    """
    import yaml

    from slipway.recipes.parts import Recipe

    recipes = usable()
    kinds: dict[str, Mapping[str, Recipe]] = {
        "dataset": recipes.datasets,
        "suite": recipes.suites,
        "training": recipes.all_trainings,
        "sweep": recipes.sweeps,
    }
    chosen = [names.resolved(kind, KINDS, "kind of recipe")] if kind else KINDS
    known = {name for section in chosen for name in kinds[section]}
    name = names.resolved(recipe, known, "recipe")
    documents = {section: kinds[section][name].model_dump(mode="json") for section in chosen if name in kinds[section]}
    if json:
        return output.print_json(documents)
    print(
        "---\n".join(
            f"# {section} {name}\n{yaml.safe_dump(value, sort_keys=False)}" for section, value in documents.items()
        ),
        end="",
    )
