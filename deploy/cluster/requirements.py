"""What an image installs: `python requirements.py platform | trainer`, beside pyproject.toml, prints it for pip.

The versions are those of pyproject.toml, which is the one place that has any. It runs with nothing installed.
"""

import re
import sys
import tomllib
from pathlib import Path

TRAINER = (
    "blake3",
    "cryptography",
    "numpy",
    "nvidia-ml-py",
    "s3fs",
    "safetensors",
    "starlette",
    "torch",
    "uvicorn",
)
"""What trainer/ imports; the rest of the dependencies is the platform's."""


def requirements(image: str, pyproject: Path = Path("pyproject.toml")) -> list[str]:
    """The pinned requirements of an image. Raises KeyError for a package of the trainer's that has no version."""
    pinned = {_name(each): each for each in tomllib.loads(pyproject.read_text())["project"]["dependencies"]}
    return [pinned[name] for name in TRAINER] if image == "trainer" else list(pinned.values())


def _name(requirement: str) -> str:
    return re.split(r"[=<>!~ \[;]", requirement, maxsplit=1)[0]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
