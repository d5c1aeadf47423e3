"""A real cluster of Dask for tests: a scheduler and workers in processes of their own, with certificates of their
own."""

import datetime
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from slipway.assets.datasets.building.build_log import quiet
from slipway.assets.datasets.building.dask_cluster import AUTHORITY, CERTIFICATE, KEY, DaskCluster, security
from tests.conftest import until

ROOT = Path(__file__).parents[3]
PROCESS = [sys.executable, "-m", "slipway.assets.datasets.building.dask_process"]


class Cluster:
    """A scheduler and its workers."""

    def __init__(self, certificates: Path, **environment: str) -> None:
        """`environment` is that of the scheduler, beside this process' own."""
        self.certificates = certificates
        self._scheduler = self._start("scheduler", "--port", "0", **environment)
        assert self._scheduler.stdout is not None
        self.scheduler = self._scheduler.stdout.readline().strip()
        self.workers: list[subprocess.Popen[str]] = []

    @property
    def cluster(self) -> DaskCluster:
        return DaskCluster(self.scheduler, self.certificates, quiet)

    @property
    def pids(self) -> list[int]:
        """The processes of the cluster."""
        return [process.pid for process in (self._scheduler, *self.workers)]

    def start_worker(self) -> "subprocess.Popen[str]":
        worker = self._start("worker", "--scheduler", self.scheduler, "--port", "0")
        self.workers.append(worker)
        return worker

    def wait(self) -> None:
        """Wait until the scheduler knows all workers that run."""
        from distributed import Client

        with Client(self.scheduler, security=security(self.certificates), set_as_default=False) as client:
            until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == self._running(), "the workers to join")

    def _running(self) -> int:
        return sum(worker.poll() is None for worker in self.workers)

    def restart_scheduler(self) -> None:
        """Kill the scheduler and start another one at the same address."""
        self._scheduler.kill()
        self._scheduler.wait()
        self._scheduler = self._start("scheduler", "--port", self.scheduler.rpartition(":")[2])
        assert self._scheduler.stdout is not None
        assert self._scheduler.stdout.readline().strip() == self.scheduler

    def end(self) -> None:
        for process in (*self.workers, self._scheduler):
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _start(self, role: str, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        common = ["--certificates", str(self.certificates), "--host", "127.0.0.1", "--bound"]
        return subprocess.Popen(
            [*PROCESS, role, *common, *arguments],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            text=True,
        )


@contextmanager
def started(folder: Path, workers: int, **environment: str) -> Iterator[Cluster]:
    """A scheduler and so many workers, until the block ends."""
    write_certificates(folder)
    cluster = Cluster(folder, **environment)
    try:
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.end()


def write_certificates(folder: Path) -> None:
    """A certificate that is its own authority, with its key."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "datasets")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    for file in (AUTHORITY, CERTIFICATE):
        (folder / file).write_bytes(certificate.public_bytes(pem))
    (folder / KEY).write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
