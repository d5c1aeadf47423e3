"""The tests of what has changed, by room: ``python -m tests.changed [BASE]`` prints their paths for pytest.

The tests of trainer/record/fence.py are tests/trainer/record/test_fence.py where there is one, else those of its room,
tests/trainer/record/, else those of the nearest room above that has tests.
"""

import subprocess
import sys
from pathlib import Path, PurePosixPath


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    paths = {tests for file in changed(base) if (tests := covering(PurePosixPath(file)))}
    print(*sorted(paths) or ["tests/test_files.py"])


def changed(base: str) -> list[str]:
    """The Python files that differ from a revision, new ones included. Raises CalledProcessError for an unknown one."""
    commands = (["git", "diff", "--name-only", base], ["git", "ls-files", "--others", "--exclude-standard"])
    listed = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for command in commands
    ]
    return [name for names in listed for name in names if name.endswith(".py")]


def covering(file: PurePosixPath, root: Path = Path()) -> str:
    """The test file or folder that a file's change concerns; empty where there is none."""
    if file.parts[0] == "tests":
        itself = file.name.startswith("test_") and (root / file).exists()
        return str(file) if itself else str(file.parent)
    room = PurePosixPath("tests") / file.parent
    if (root / (own := room / f"test_{file.name}")).is_file():
        return str(own)
    return next((str(folder) for folder in (room, *room.parents) if (root / folder).is_dir() and folder.name), "")


if __name__ == "__main__":
    main()
