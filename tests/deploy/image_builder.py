"""A builder of images without a daemon: buildah, in a folder of its own, with the package sources of this machine.

The base is what SLIPWAY_TEST_BASE names, or else made here of Debian's packages by mmdebstrap, since a test may not
depend on a registry. Layers are kept in SLIPWAY_TEST_IMAGES, where it names a folder, and are then built once.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from slipway.deploy.cluster.render import DEPLOY

ROOT = DEPLOY.parent
BASE = "localhost/slipway-test/python:3.11-bookworm"
PACKAGES = "python3,python3-venv,python-is-python3,ca-certificates"
CERTIFICATES = Path("/etc/ssl/certs")
READ_ONLY = """
set -eu
root=$1; shift
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
for folder in $SHARED; do mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; done # below /tmp
exec /usr/sbin/chroot --userspec=1000:1000 "$root" "$@"
"""
"""A pod's view of an image: its root read-only, /tmp of its own, no user but 1000."""


def why_not() -> str:
    """Why no image can be built here; empty where one can."""
    if os.geteuid():
        return "found another user, expected root, who may mount an image"
    programs = ["buildah", *([] if os.environ.get("SLIPWAY_TEST_BASE") else ["mmdebstrap"])]
    missing = [name for name in programs if shutil.which(name) is None]
    return f"found no {' and no '.join(missing)}, expected them installed" if missing else ""


@dataclass(frozen=True)
class BuiltImage:
    """An image that was built, mounted in a folder."""

    mounted: Path
    config: Mapping[str, Any]
    layers: Sequence[str]
    """The digest of each layer, the base's first."""

    @property
    def environment(self) -> dict[str, str]:
        return dict(variable.split("=", 1) for variable in self.config["Env"])

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs `arguments` in the image as a pod does."""
        return [
            "unshare",
            "--mount",
            "--propagation=private",
            "sh",
            "-c",
            READ_ONLY,
            "sh",
            str(self.mounted),
            *arguments,
        ]

    def environ(self, shared: Path | None = None, **more: str) -> dict[str, str]:
        """The environment of such a command; `shared`, a folder below /tmp, is there under the same path."""
        return {**self.environment, "SHARED": str(shared or ""), **more}

    def run(self, *arguments: str, shared: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the image to its end."""
        return subprocess.run(
            self.command(*arguments), env=self.environ(shared, **more), capture_output=True, text=True
        )

    def output_of(self, *arguments: str) -> str:
        """What a program of the image prints. Raises CalledProcessError for one that fails."""
        done = self.run(*arguments)
        if done.returncode:
            print(done.stderr)
        done.check_returncode()
        return done.stdout.strip()


class ImageBuilder:
    """Builds this repository's images below a folder."""

    def __init__(self, folder: Path, revision: str) -> None:
        self.folder, self._revision = folder, revision
        folder.mkdir(parents=True, exist_ok=True)

    def build(self, image: str) -> Iterator[BuiltImage]:
        """Build one image and mount it for as long as the generator lives. Raises CalledProcessError with its log."""
        arguments = [f"--build-arg=BASE={self._base}", f"--build-arg=REVISION={self._revision}"]
        name = f"localhost/slipway-test/{image}"
        file = DEPLOY / "images" / image / "Dockerfile"
        isolated = ["--isolation=chroot", "--network=host", "--layers", *self._sources]
        self.tool("bud", *isolated, *arguments, f"--tag={name}", f"--file={file}", str(ROOT))
        image_config = json.loads(self.tool("inspect", "--type=image", name))["OCIv1"]
        container = self.tool("from", "--pull-never", name).strip()
        try:
            mounted = Path(self.tool("mount", container).strip())
            yield BuiltImage(mounted, image_config["config"], image_config["rootfs"]["diff_ids"])
        finally:
            self.tool("rm", container)

    def tool(self, *arguments: str) -> str:
        """Run buildah; what it printed. Raises CalledProcessError, after it has printed why."""
        folders = [f"--root={self.folder / 'layers'}", f"--runroot={self.folder / 'run'}"]
        return subprocess.run(["buildah", *folders, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout

    @cached_property
    def _base(self) -> str:
        """The base's name, after it has been made where there is none."""
        if named := os.environ.get("SLIPWAY_TEST_BASE"):
            return named
        if BASE not in self.tool("images", "--format={{.Name}}:{{.Tag}}").splitlines():
            archive = self.folder / "base.tar"
            command = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(archive)]
            subprocess.run(command, check=True)
            container = self.tool("from", "scratch").strip()
            self.tool("add", "--quiet", container, str(archive), "/")
            self.tool("config", "--env=PATH=/usr/local/bin:/usr/bin:/bin", container)
            self.tool("commit", "--quiet", "--rm", container, BASE)
            archive.unlink()
        return BASE

    @property
    def _sources(self) -> list[str]:
        """This machine's settings of pip, and the files that they name, for the time of a build."""
        settings = pip_settings()
        file = self.folder / "pip.conf"
        file.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in settings.items()), ""]))
        paths = (Path(word) for value in settings.values() for word in value.split() if word.startswith("/"))
        named = [word for word in paths if word.exists() and not word.is_relative_to(CERTIFICATES)]
        mounts = {file: "/etc/pip.conf", CERTIFICATES: str(CERTIFICATES), **{path: str(path) for path in named}}
        return [f"--volume={source}:{target}:ro" for source, target in mounts.items()]


def pip_settings() -> dict[str, str]:
    """How pip is set here, from its files and its environment, less the indexes that are folders of this machine."""
    listed = subprocess.check_output([sys.executable, "-m", "pip", "config", "list"], text=True)
    settings = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = value.strip("'")
    return {name: value for name, value in settings.items() if "file:" not in value}


def layers_folder(factory: pytest.TempPathFactory) -> Path:
    """Where the layers are kept."""
    named = os.environ.get("SLIPWAY_TEST_IMAGES")
    return Path(named) if named else factory.mktemp("images")
