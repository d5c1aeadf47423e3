"""A folder of recipes: what is said of one that has none, and of files with other names."""

import pytest

from tests.recipes.conftest import DATASET, Folder

pytestmark = pytest.mark.pure


def test_a_folder_without_recipes_is_reported(folder: Folder):
    nowhere = folder.path / "nowhere"
    assert Folder(nowhere).problems() == [
        f"{nowhere}: found no recipes, expected a folder with at least one of datasets/, suites/, trainings/, sweeps/"
    ]


@pytest.mark.parametrize("name", ["Tiny.yaml", "tiny_decoder.yaml", "1st.yaml", "a--b.yaml", "a-.yaml", "tiny.yml"])
def test_a_name_that_assets_cannot_have_is_refused(folder: Folder, name: str):
    folder.write(f"datasets/{name}", (folder.path / DATASET).read_bytes())
    assert folder.problems() == [
        f"datasets/{name}: found the file name {name}, "
        "expected lower-case letters, digits and single hyphens, then .yaml"
    ]
