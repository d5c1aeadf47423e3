"""The kernel's log: lines as they are published become sentences, and any other line says nothing.

The Xids are those of NVIDIA's documentation (docs.nvidia.com/deploy/xid-errors) and of users' reports; the killed
processes are printed by `mm/oom_kill.c` of Linux, the one with a cgroup is from a report on linux-mm by M. Hocko.
"""

import time
from pathlib import Path

import pytest

from slipway.trainer.diagnosis import kernel
from slipway.trainer.diagnosis.commands import NoEvidence

pytestmark = pytest.mark.pure

LINES = {
    "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.": (
        "Xid (PCI:0000:3b:00): 79: GPU has fallen off the bus"
    ),
    "NVRM: Xid (PCI:0000:01:00): 31, pid=2096908, name=python3, Ch 00000008, intr 00000000. MMU Fault": (
        "Xid (PCI:0000:01:00): 31: Ch 00000008, intr 00000000. MMU Fault (pid 2096908, python3)"
    ),
    "NVRM: Xid (PCI:0000:03:00): 14, Channel 00000001": "Xid (PCI:0000:03:00): 14: Channel 00000001",
    "NVRM: Xid (0000:03:00): 48": "Xid (0000:03:00): 48",
    "Memory cgroup out of memory: Killed process 23793 (leaker) total-vm:2623712kB, anon-rss:506500kB, "
    "file-rss:1268kB, shmem-rss:0kB": (
        "the kernel killed leaker (pid 23793), which held 0.5 GB: the limit of its container was used up"
    ),
    "Out of memory: Killed process 2811 (python3) total-vm:16420540kB, anon-rss:13951040kB, file-rss:4528kB, "
    "shmem-rss:0kB, UID:0 pgtables:4832kB oom_score_adj:0": (
        "the kernel killed python3 (pid 2811), which held 14.0 GB: the node's memory was used up"
    ),
    "Out of memory: Kill process 1234 (python3) score 900 or sacrifice child": (
        "the kernel killed python3 (pid 1234): the node's memory was used up"
    ),
    "oom_reaper: reaped process 23793 (leaker), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB": "",
    "NVRM: GPU at PCI:0000:01:00: GPU-34d7319c-5b19-1e75-186d-c187099e4fe5": "",
    "EXT4-fs (vda): mounted filesystem r/w without journal. Quota mode: none.": "",
}


def record(message: str, seconds: float) -> str:
    return f"3,42,{int(seconds * 1e6)},-;{message}\n SUBSYSTEM=pci\n"


@pytest.mark.parametrize(("line", "sentence"), LINES.items())
def test_a_published_line_becomes_a_sentence(line: str, sentence: str):
    assert kernel.sentence(line) == sentence


def test_what_happened_before_the_last_minutes_is_not_reported():
    old, new = (record(f"NVRM: Xid (PCI:0000:3b:00): {code}, x", at) for code, at in ((48, 100.0), (79, 900.0)))
    assert [(fault.at, fault.what) for fault in kernel.faults([old, new], since=500.0)] == [
        (900.0, "Xid (PCI:0000:3b:00): 79: x")
    ]


def test_a_fault_that_repeats_is_reported_once_and_no_more_than_the_newest_are():
    flood = [record(f"NVRM: Xid (PCI:0000:3b:00): 31, {number}", number) for number in range(100)]
    faults = kernel.faults([*flood, *flood])
    assert len(faults) == kernel.MOST and faults[-1].what.endswith(": 99")


def test_records_that_are_no_records_are_passed_over():
    assert kernel.faults(["", "no record", "a,b,c;d", "3,1,5;"]) == []


def test_a_log_that_cannot_be_read_is_lacking_and_not_empty(tmp_path: Path):
    with pytest.raises(NoEvidence, match="No such file"):
        kernel.recent(1.0, tmp_path / "kmsg")


def test_the_log_of_this_machine_is_read_within_its_time():
    begun = time.monotonic()
    try:
        kernel.recent(2.0)
    except (NoEvidence, OSError):
        pytest.skip("this machine does not let its kernel's log be read")
    assert time.monotonic() - begun < 60
