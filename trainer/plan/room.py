"""The room: the memory and the disks that a plan is compared with, of a cluster's profile or of this machine."""

import os
from dataclasses import dataclass

from slipway.trainer.base.units import GIB, MIB
from slipway.trainer.config.profiles import NETWORKS, HardwareProfile

THIS_MACHINE = "this machine"
CONTEXT_BYTES = GIB
"""CUDA's context, its libraries' kernels and the workspaces of cuBLAS, on each GPU."""
CHANNELS = 32
"""NCCL's buffers of one group: channels times receive buffers (docs.nvidia.com/deeplearning/nccl, NCCL_BUFFSIZE)."""
BUFFER_BYTES = 4 * MIB
"""NCCL's own default of NCCL_BUFFSIZE."""
PROCESS_BYTES = 5 * GIB
"""Memory of the host that a rank has beside its buffers: libraries, pinned batches, workers that load."""
CPU_PROCESS_BYTES = GIB // 2


@dataclass(frozen=True, kw_only=True)
class Room:
    """The bytes that one rank and one node have."""

    name: str
    rank_bytes: int
    """Memory of a rank's device."""
    context_bytes: int
    """Taken on the device before the first tensor."""
    group_bytes: int
    """Taken on the device for each group of ranks that talk."""
    host_bytes: int
    """Memory of a node for the pods' processes."""
    process_bytes: int
    """The part of it that a rank takes before its first checkpoint."""
    nvme_bytes: int | None
    nvme_rate: float | None
    """Bytes/s; None if it is not configured."""
    durable_rate: float | None
    profile: HardwareProfile | None = None

    @property
    def on_gpu(self) -> bool:
        return self.profile is not None


def of_profile(profile: HardwareProfile, pod_bytes: int | None = None) -> Room:
    """The room on a cluster; `pod_bytes` is the recipe's request, which replaces the profile's."""
    buffer = NETWORKS[profile.fabric].get("buffer_bytes", BUFFER_BYTES)
    return Room(
        name=profile.name,
        rank_bytes=int(profile.sheet.memory * GIB),
        context_bytes=CONTEXT_BYTES,
        group_bytes=CHANNELS * buffer,
        host_bytes=min(pod_bytes or profile.pod_bytes, profile.host_bytes),
        process_bytes=PROCESS_BYTES,
        nvme_bytes=profile.nvme_bytes,
        nvme_rate=profile.nvme_rate,
        durable_rate=profile.durable_rate,
        profile=profile,
    )


def local_room(ranks: int) -> Room:
    """The room on this machine for so many ranks, without GPUs: each has its share of the memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Room(
        name=THIS_MACHINE,
        rank_bytes=total // ranks,
        context_bytes=CPU_PROCESS_BYTES,
        group_bytes=0,
        host_bytes=total,
        process_bytes=CPU_PROCESS_BYTES,
        nvme_bytes=None,
        nvme_rate=None,
        durable_rate=None,
    )
