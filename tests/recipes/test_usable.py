"""A bad recipe takes out its own lane, and what stands on it; the others can be used."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway import recipes
from slipway.recipes import texts
from slipway.recipes.problems import InvalidRecipes
from slipway.recipes.usable import UsableRecipes, made_of, usable, usable_with


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of Slipway's own recipes."""
    for kind in ("datasets", "suites", "trainings", "sweeps", "examples"):
        shutil.copytree(Path(recipes.__file__).parent / kind, tmp_path / kind)
    return tmp_path


def edit(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


def broken(folder: Path, **environ: str) -> dict[str, tuple[str, ...]]:
    """The problems of each recipe that cannot be used."""
    return {f"{recipe.kind}/{recipe.name}": recipe.problems for recipe in usable(folder, None, environ).broken}


def test_good_recipes_can_all_be_used(folder: Path):
    assert broken(folder) == {}


def test_a_bad_training_takes_its_sweep_with_it_and_leaves_the_others(folder: Path):
    edit(folder, "trainings/tiny-decoder.yaml", "  layers:", "  color: red\n  layers:")
    usable_recipes = usable(folder, None, {})
    assert list(usable_recipes.recipes.scripts) == ["bigram"] and list(usable_recipes.recipes.datasets) == [
        "python-stdlib"
    ]
    assert usable_recipes.recipes.trainings == {} and usable_recipes.recipes.sweeps == {}
    problems = broken(folder)
    assert "model.color: found an unknown field" in problems["trainings/tiny-decoder"][0]
    needs = "trainings/tiny-decoder.yaml cannot be used, and sweeps/tiny-decoder.yaml needs it"
    assert problems["sweeps/tiny-decoder"] == (needs,)


def test_a_bad_dataset_takes_all_that_stands_on_it(folder: Path):
    (folder / "datasets" / "python-stdlib.yaml").write_text("slipway: dataset/1\nsource: {kind: stdlib\n")
    assert sorted(broken(folder)) == [
        "datasets/python-stdlib",
        "suites/python-stdlib",
        "sweeps/tiny-decoder",
        "trainings/bigram",
        "trainings/tiny-decoder",
    ]


def test_a_bad_variable_is_a_problem_of_the_recipe_that_it_names(folder: Path):
    problems = broken(folder, SLIPWAY_SWEEPS__TINY_DECODER__TRIALS="many")
    assert list(problems) == ["sweeps/tiny-decoder"] and problems["sweeps/tiny-decoder"][0].startswith(
        "SLIPWAY_SWEEPS__"
    )


def test_a_variable_that_names_no_recipe_is_refused(folder: Path):
    with pytest.raises(InvalidRecipes, match="the unknown recipe other"):
        usable(folder, None, {"SLIPWAY_TRAININGS__OTHER__RUN__STEPS": "5"})


def test_the_texts_that_were_read_make_the_same_recipes_whatever_is_written_afterwards(folder: Path):
    written = texts.unpacked(texts.packed(texts.read(folder)))
    before = usable(folder, None, {}).recipes
    (folder / "trainings" / "tiny-decoder.yaml").write_text("no recipe any more")
    (folder / "trainings" / "bigram.yaml").unlink()
    assert usable(folder, written, {}).recipes == before


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere")], ids=["folder", "dangling link"])
def test_a_recipe_that_cannot_be_read_leaves_the_others(make: Callable[[Path], None], folder: Path):
    make(folder / "trainings" / "other.yaml")
    written = texts.unpacked(texts.packed(texts.read(folder)))
    for usable_recipes in (usable(folder, None, {}), usable(folder, written, {})):
        [other] = usable_recipes.broken
        assert other.name == "other" and other.problems[0].endswith('", expected a file that can be read')
        assert sorted(usable_recipes.recipes.all_trainings) == ["bigram", "tiny-decoder"]


def test_one_recipe_can_be_used_whatever_is_wrong_with_others(folder: Path):
    edit(folder, "trainings/tiny-decoder.yaml", "  layers:", "  color: red\n  layers:")
    recipes = usable_with(folder, "datasets", "python-stdlib", {})
    assert (list(recipes.datasets), list(recipes.trainings), list(recipes.sweeps)) == (["python-stdlib"], [], [])


def test_what_is_wrong_with_what_a_recipe_stands_on_is_said_and_nothing_else(folder: Path):
    edit(folder, "trainings/tiny-decoder.yaml", "  layers:", "  color: red\n  layers:")
    (folder / "trainings" / "other.yaml").write_text("slipway: training/2\n")
    with pytest.raises(InvalidRecipes) as refused:
        usable_with(folder, "sweeps", "tiny-decoder", {})
    assert [problem.field for problem in refused.value.problems] == ["model.color"]


def test_a_recipe_of_which_nothing_can_be_made_takes_out_its_lane_alone(folder: Path):
    """Whatever the reason is: the check of a recipe may know less than Dagster."""

    def make(usable_recipes: UsableRecipes) -> UsableRecipes:
        if "tiny-decoder" in usable_recipes.recipes.trainings:
            raise RuntimeError("found invalid cron schedule")
        return usable_recipes

    product = made_of(usable(folder, None, {}), make)
    assert list(product.recipes.scripts) == ["bigram"]
    assert not product.recipes.trainings and not product.recipes.sweeps
    problems = {f"{recipe.kind}/{recipe.name}": recipe.problems for recipe in product.broken}
    reason = "trainings/tiny-decoder.yaml: no definitions can be made of it: RuntimeError: found invalid cron schedule"
    needs = "trainings/tiny-decoder.yaml cannot be used, and sweeps/tiny-decoder.yaml needs it"
    assert problems == {"trainings/tiny-decoder": (reason,), "sweeps/tiny-decoder": (needs,)}


def test_a_fault_that_is_no_recipes_is_raised(folder: Path):
    """It is there with each recipe alone and with none."""

    def make(usable_recipes: UsableRecipes) -> None:
        raise RuntimeError("the platform")

    with pytest.raises(RuntimeError, match="the platform"):
        made_of(usable(folder, None, {}), make)
