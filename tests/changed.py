"""The tests of what has changed, by room: ``python -m tests.changed [BASE]`` prints their paths for pytest.

The tests of trainer/record/fence.py are tests/trainer/record/test_fence.py where there is one, else those of its room,
tests/trainer/record/, else those of the nearest room above that has tests.
"""

import subprocess
import sys
from pathlib import Path, PurePosixPath


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    found = {tests for file in changed(base) if (tests := covering(PurePosixPath(file)))}
    print(*sorted(found) or ["tests/test_files.py"])


def changed(base: str) -> list[str]:
    """The Python files that differ from a revision, new ones included. Raises CalledProcessError for an unknown one."""
    commands = (["git", "diff", "--name-only", base], ["git", "ls-files", "--others", "--exclude-standard"])
    listed = [subprocess.run(each, capture_output=True, text=True, check=True).stdout.split() for each in commands]
    return [name for each in listed for name in each if name.endswith(".py")]


def covering(file: PurePosixPath, root: Path = Path()) -> str:
    """The test file or folder that a file's change concerns; empty where there is none."""
    if file.parts[0] == "tests":
        itself = file.name.startswith("test_") and (root / file).exists()
        return str(file) if itself else str(file.parent)
    room = PurePosixPath("tests") / file.parent
    if (root / (own := room / f"test_{file.name}")).is_file():
        return str(own)
    return next((str(each) for each in (room, *room.parents) if (root / each).is_dir() and each.name), "")


if __name__ == "__main__":
    main()
