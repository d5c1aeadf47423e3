"""The commands of docs/tutorial.md, as a reader copies them into a terminal."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from markdown_it import MarkdownIt

from tests.embedded.slipway import MARK, ROOT, free_port

PAGE = ROOT / "docs" / "tutorial.md"


def blocks() -> list[str]:
    """The blocks of commands, in their order: those fenced as `sh`."""
    return [
        token.content for token in MarkdownIt().parse(PAGE.read_text()) if token.type == "fence" and token.info == "sh"
    ]


class Reader:
    """Somebody with an empty folder and a terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")} | {
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SLIPWAY_PORT": str(self.port),
            MARK: str(folder),
        }

    def types(self, commands: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        """Run the commands one after the other; the first that fails ends it."""
        script = "\n".join(commands)
        return subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
