"""A real Ceph for tests, of Debian's packages, on loopback: monitor, manager, store, metadata, gateway and mounts.

`apt-get install --no-install-recommends ceph-mon ceph-mgr ceph-osd ceph-mds radosgw ceph-fuse` installs the programs;
SLIPWAY_TEST_CEPH names a folder in which `dpkg -x` unpacked them and what they need, where they are not installed.
Tests on it are nightly, and are skipped, with the reason, where a program is missing.
"""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.conftest import MARK, until
from tests.s3 import KEY, SECRET, Server, free_ports, point_at

PROGRAMS = ("ceph", "ceph-authtool", "monmaptool", "ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds")
GATEWAY_PROGRAMS = ("radosgw", "radosgw-admin")
MOUNT_PROGRAMS = ("ceph-fuse",)
SERVERS = {"mon.a": "mon", "mgr.a": "mgr", "osd.0": "osd", "mds.a": "mds"}
"""The servers in the order of their start, by what they are."""
MAY = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "mgr": "allow *", "osd": "allow *", "mds": "allow *"},
    "mgr.a": {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"},
    "osd.0": {"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"},
    "mds.a": {"mon": "allow profile mds", "mgr": "allow profile mds", "osd": "allow rwx", "mds": "allow *"},
    "client.rgw": {"mon": "allow rw", "mgr": "allow rw", "osd": "allow rwx"},
}
"""Who has a key, and what it opens. Without keys (`auth = none`) the gateway waits for ever."""
SETTINGS = """[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon}]
public addr = 127.0.0.1
keyring = {folder}/keyring
run dir = {folder}
admin socket = {folder}/$name.$pid.asok
log file = {folder}/$name.log
mon data = {folder}/mon
osd data = {folder}/osd
mds data = {folder}
mgr data = {folder}
rgw data = {folder}
osd objectstore = memstore
memstore device bytes = 2147483648
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd class dir = {root}/usr/lib/x86_64-linux-gnu/rados-classes
osd class load list = *
osd class default list = *
erasure code dir = {root}/usr/lib/x86_64-linux-gnu/ceph/erasure-code
plugin dir = {root}/usr/lib/x86_64-linux-gnu/ceph
mgr module path = {folder}/modules
mon allow pool size one = true
mon allow pool delete = true
mon warn on pool no redundancy = false
auth allow insecure global id reclaim = false
rgw thread pool size = 32
"""
"""One copy of everything, in memory: a test's data need not outlive it, and its disk is not Ceph's to keep busy. The
manager gets an empty folder of modules, whose imports would take most of the start."""


class Ceph:
    """A cluster of one server of each kind, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, Path(os.environ.get("SLIPWAY_TEST_CEPH", "/"))
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Make the cluster and start its servers; return when it has a file system."""
        self._write_settings()
        self.run("monmaptool", "--create", "--fsid", self._fsid, "--addv", "a", self._address, self._file("monmap"))
        self.run("ceph-mon", "--mkfs", "--id=a", "--monmap", self._file("monmap"), "--keyring", self._file("keyring"))
        self._serve("mon.a")
        self.output_of("ceph", "osd", "new", self._fsid)
        self.run("ceph-osd", "--mkfs", "--id=0", "--osd-uuid", self._fsid)
        for name in ("mgr.a", "osd.0"):
            self._serve(name)
        for pool in ("metadata", "data"):
            self.output_of("ceph", "osd", "pool", "create", pool, "8")
        self.output_of("ceph", "fs", "new", "cephfs", "metadata", "data")
        self._serve("mds.a")
        until(
            lambda: "up:active" in self.output_of("ceph", "mds", "stat"), f"the metadata server (logs: {self.folder})"
        )

    def stop(self) -> None:
        """End its servers, the last one first."""
        for process in reversed(self._running):
            process.kill()
            process.wait()

    def command(self, program: str, *arguments: str) -> list[str]:
        """The command line of one of Ceph's programs."""
        path = str(self.root / "usr/bin" / program)
        return ["/usr/bin/python3", path, *arguments] if program == "ceph" else [path, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of Ceph's programs: of this process, less what belongs to the test."""
        own = {name: value for name, value in os.environ.items() if name not in (MARK, "PYTHONPATH")}
        libraries = (self.root / folder / "x86_64-linux-gnu" for folder in ("usr/lib", "lib"))
        unpacked = {
            "LD_LIBRARY_PATH": ":".join(f"{folder}:{folder / 'ceph'}" for folder in libraries),
            "PYTHONPATH": str(self.root / "usr/lib/python3/dist-packages"),
        }
        return own | {"CEPH_CONF": self._file("ceph.conf")} | (unpacked if self.root != Path("/") else {})

    def run(self, program: str, *arguments: str) -> None:
        self.output_of(program, *arguments)

    def output_of(self, program: str, *arguments: str) -> str:
        """What a program prints. Fails with its own words for one that fails."""
        done = subprocess.run(self.command(program, *arguments), env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{program} {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    @contextmanager
    def mounted(self, folder: Path) -> Iterator[Path]:
        """The file system, mounted at a folder by ceph-fuse, as another client each time."""
        folder.mkdir()
        command = self.command("ceph-fuse", "--id=admin", "-f", str(folder))
        with (self.folder / f"{folder.name}.log").open("ab") as log:
            process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            until(lambda: os.path.ismount(folder) or process.poll() is not None, f"{folder} to be mounted")
            assert process.poll() is None, (self.folder / f"{folder.name}.log").read_text()
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=False)
            process.terminate()
            process.wait()

    def _write_settings(self) -> None:
        [port] = free_ports(1)
        self._fsid, self._address = str(uuid.uuid4()), f"[v2:127.0.0.1:{port}]"
        settings = SETTINGS.format(fsid=self._fsid, mon=port, folder=self.folder, root=str(self.root).rstrip("/"))
        (self.folder / "ceph.conf").write_text(settings)
        for name in ("mon", "osd", "modules"):
            (self.folder / name).mkdir()
        self.run("ceph-authtool", "--create-keyring", self._file("keyring"))
        for name, caps in MAY.items():
            capabilities = [word for of, cap in caps.items() for word in ("--cap", of, cap)]
            self.run("ceph-authtool", self._file("keyring"), "--gen-key", "--name", name, *capabilities)

    def _serve(self, name: str) -> None:
        kind, _, number = name.partition(".")
        with (self.folder / f"{name}.out").open("ab") as log:
            command = self.command(f"ceph-{kind}", f"--id={number}", "-f")
            self._running.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))

    def _file(self, name: str) -> str:
        return str(self.folder / name)


class Gateway(Server):
    """Ceph's S3 server, which may be killed and started again; what it stores is the cluster's."""

    def __init__(self, ceph: Ceph) -> None:
        super().__init__(ceph.folder)
        self._ceph = ceph
        [self.port] = free_ports(1)

    @property
    def command(self) -> Sequence[str]:
        front = f"--rgw-frontends=beast endpoint=127.0.0.1:{self.port}"
        return self._ceph.command("radosgw", "--name=client.rgw", "-f", front)

    @property
    def environment(self) -> Mapping[str, str]:
        return self._ceph.environment

    def new_user(self) -> None:
        keys = ("--access-key", KEY, "--secret-key", SECRET)
        self._ceph.run("radosgw-admin", "user", "create", "--uid=tests", "--display-name=tests", *keys)


def why_not(programs: Sequence[str]) -> str:
    """Why Ceph cannot be started here; empty where it can."""
    if os.geteuid():
        return "found another user, expected root, who may mount"
    root = Path(os.environ.get("SLIPWAY_TEST_CEPH", "/"))
    missing = [program for program in (*PROGRAMS, *programs) if not (root / "usr/bin" / program).exists()]
    return f"found no {', '.join(missing)}, expected Debian's packages of Ceph (see tests/ceph.py)" if missing else ""


@pytest.fixture(scope="session")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ceph]:
    """One cluster for all tests."""
    if reason := why_not(()):
        pytest.skip(reason)
    # Not below the tests' own folder: the path of a socket has at most 107 bytes.
    folder = Path(subprocess.check_output(["mktemp", "--directory"], text=True).strip())
    cluster = Ceph(folder)
    with ExitStack() as ending:
        ending.callback(shutil.rmtree, folder, ignore_errors=True)
        ending.callback(cluster.stop)
        cluster.start()
        yield cluster


@pytest.fixture(scope="session")
def gateway(ceph: Ceph) -> Iterator[Gateway]:
    """Its S3 server, with one bucket."""
    if reason := why_not(GATEWAY_PROGRAMS):
        pytest.skip(reason)
    server = Gateway(ceph)
    server.new_user()
    server.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            point_at(server, patch)
            server.new_bucket()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def cephfs(ceph: Ceph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Its file system, mounted."""
    if reason := why_not(MOUNT_PROGRAMS):
        pytest.skip(reason)
    with ceph.mounted(tmp_path_factory.mktemp("cephfs") / "mount") as folder:
        yield folder
