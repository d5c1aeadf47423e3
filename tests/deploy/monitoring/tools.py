"""Prometheus' tools, where they are installed (Debian: prometheus, prometheus-alertmanager)."""

import shutil
import subprocess
from pathlib import Path

import pytest


def tool(name: str) -> str:
    """The path of a program; skips the test where it is not installed."""
    path = shutil.which(name)
    if path is None:
        package = "prometheus-alertmanager" if name in ("amtool", "prometheus-alertmanager") else "prometheus"
        pytest.skip(f"{name} is not installed: apt-get install {package}")
    return path


def said_by(name: str, *arguments: str | Path) -> str:
    """What a program writes when it succeeds; its output is the failure's message when it does not."""
    done = subprocess.run([tool(name), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
