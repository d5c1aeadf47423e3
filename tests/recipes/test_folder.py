"""A folder of recipes: what is said of one that has none."""

from tests.recipes.conftest import Folder


def test_a_folder_without_recipes_is_reported(folder: Folder):
    nowhere = folder.path / "nowhere"
    assert Folder(nowhere).problems() == [
        f"{nowhere}: found no recipes, expected a folder with at least one of datasets/, suites/, trainings/, sweeps/"
    ]
