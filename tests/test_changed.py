"""`make changed`: which tests a changed file has."""

from pathlib import Path, PurePosixPath

import pytest

from tests.changed import covering

pytestmark = pytest.mark.pure


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("tests/trainer/record/test_fence.py", "tests/trainer/conftest.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("trainer/record/fence.py", "tests/trainer/record/test_fence.py"),
        ("trainer/record/ledger.py", "tests/trainer/record"),
        ("trainer/checkpoint/saving/saver.py", "tests/trainer"),
        ("definitions.py", "tests"),
        ("tests/trainer/record/test_fence.py", "tests/trainer/record/test_fence.py"),
        ("tests/trainer/record/test_removed.py", "tests/trainer/record"),
        ("tests/trainer/conftest.py", "tests/trainer"),
    ],
)
def test_a_changed_file_names_its_tests(root: Path, file: str, tests: str):
    assert covering(PurePosixPath(file), root) == tests
