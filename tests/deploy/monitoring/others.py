"""What the exporters of others say: DCGM's, the node exporter's and Ceph's, with the labels that each of them gives.

The programs need GPUs, an InfiniBand fabric and a Ceph cluster. What is taken from them are names, types and labels, of
which our queries are made; the numbers grow with time, as counters do.
"""

import http.server
import time

from slipway.deploy.monitoring.foreign import CEPH, DCGM, NODE

_GPU = 'gpu="0",UUID="GPU-0",pci_bus_id="00000000:19:00.0",device="nvidia0",modelName="NVIDIA H200",Hostname="n0"'
_DISK, _PORT = 'device="nvme0n1"', 'device="mlx5_0",port="1"'
_LABELS = {
    "node_cpu_seconds_total": 'cpu="0",mode="idle"',
    "node_filesystem": 'device="/dev/nvme0n1p1",fstype="xfs",mountpoint="/nvme"',
    "node_disk": _DISK,
    "node_network": 'device="eth0"',
    "node_infiniband": _PORT,
    "ceph_osd": 'ceph_daemon="osd.0"',
}
_ACTIVE = 4
"""The number of the state of an InfiniBand port that works."""


def text(now: float) -> str:
    """All of their metrics as a scrape finds them, seconds since the epoch being `now`."""
    return "".join(f"{name}{{{_labels(name)}}} {_value(name, now)}\n" for name in (*DCGM, *NODE, *CEPH))


def exporter() -> http.server.ThreadingHTTPServer:
    """What answers scrapes with it."""

    class Exporter(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text(time.time()).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter)


def _labels(name: str) -> str:
    return _GPU if name in DCGM else next((labels for stem, labels in _LABELS.items() if name.startswith(stem)), "")


def _value(name: str, now: float) -> float:
    return _ACTIVE if name == "node_infiniband_state_id" else round(now - 1.7e9, 3)
