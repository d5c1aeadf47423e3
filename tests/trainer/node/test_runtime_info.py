"""Environment: what a checkpoint and a start of a training say of what they ran on."""

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from slipway.trainer.node import runtime_info


def runtime_of(**variables: str) -> dict[str, Any]:
    """What a process with these variables knows of its environment."""
    code = "import json; from slipway.trainer.node import runtime_info; print(json.dumps(runtime_info.of_process()))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    info: dict[str, Any] = json.loads(done.stdout)
    return info


def test_the_packages_are_those_that_are_installed_with_their_versions():
    lines = runtime_info.packages().decode().splitlines()
    assert f"numpy=={importlib.metadata.version('numpy')}" in lines
    assert f"nvidia-ml-py=={importlib.metadata.version('nvidia-ml-py')}" in lines
    assert lines == sorted(lines)


def test_the_list_of_packages_is_kept_under_its_hash(tmp_path: Path):
    runtime_info.keep_packages(tmp_path)
    runtime_info.keep_packages(tmp_path)
    [package_list] = (tmp_path / runtime_info.FOLDER).iterdir()
    assert package_list.name == f"{hashlib.sha256(package_list.read_bytes()).hexdigest()}.packages"
    assert package_list.name == f"{runtime_info.of_process()['packages']}.packages"


def test_variables_of_libraries_are_known_and_no_others():
    info = runtime_of(NCCL_DEBUG="INFO", AWS_SECRET_ACCESS_KEY="a secret", SLIPWAY_TOKEN="another")
    assert info["variables"]["NCCL_DEBUG"] == "INFO"
    assert not {"AWS_SECRET_ACCESS_KEY", "SLIPWAY_TOKEN", "HOME"} & info["variables"].keys()


def test_an_image_is_known_by_its_digest_where_its_name_has_one():
    exact = runtime_of(SLIPWAY_IMAGE="registry.example/trainer@sha256:12ab")
    assert exact["image_digest"] == "sha256:12ab"
    loose = runtime_of(SLIPWAY_IMAGE="registry.example/trainer:1")
    assert loose["image"] == "registry.example/trainer:1" and "image_digest" not in loose


def test_torch_is_not_imported_for_its_version():
    known = runtime_of()
    assert {"python", "kernel", "packages"} <= known.keys() and "torch" not in known
