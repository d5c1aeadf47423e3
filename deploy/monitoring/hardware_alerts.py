"""Alerts about GPUs, networks, disks and Ceph, from the metrics of DCGM, the node exporter and Ceph's own exporter."""

from slipway.deploy.monitoring.rule import AlertRule, RuleGroup

HARDWARE = RuleGroup(
    "slipway-hardware",
    "5s",
    (
        AlertRule(
            "GpuHot", "critical", "DCGM_FI_DEV_GPU_TEMP > 85", "5m",
            "GPU {gpu} of {Hostname} has been hotter than 85 °C for 5 minutes",
            "The GPU lowers its clocks, and all ranks wait for it.",
            "Look at the fans, the air inlets and the room temperature. If the GPU stays hot, quarantine the node.",
        ),
        AlertRule(
            "GpuIdle", "warning", "DCGM_FI_DEV_GPU_UTIL < 50", "10m",
            "GPU {gpu} of {Hostname} has been used less than half for 10 minutes",
            "The GPU has no work, or its work waits for something else.",
            "Read the speed limit of its training: `slipway show ID`.",
        ),
        AlertRule(
            "GpuXid", "critical", "DCGM_FI_DEV_XID_ERRORS > 0", "0s",
            "GPU {gpu} of {Hostname} has reported an Xid error",
            "The driver has reported an error. After a severe error, the platform takes the node out of service.",
            "Look up the number in the table of docs/incidents.md.",
        ),
        AlertRule(
            "GpuMemoryError", "critical", "increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[10m]) > 0", "0s",
            "GPU {gpu} of {Hostname} has had an uncorrectable memory error",
            "Results from this GPU cannot be trusted.",
            "Quarantine the node and reset the GPU; replace it if the error comes back.",
        ),
        AlertRule(
            "GpuThrottled", "warning", "rate(DCGM_FI_DEV_THERMAL_VIOLATION[5m]) > 0", "5m",
            "GPU {gpu} of {Hostname} is throttled by heat",
            "It computes slower than the others.",
            "Look at its temperature and power on the dashboard GPU.",
        ),
        AlertRule(
            "GpuMemoryNearlyFull", "warning",
            "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) > 0.98", "10m",
            "The memory of GPU {gpu} of {Hostname} is full",
            "The next longer batch may not fit.",
            "Make `batch.micro` smaller before the memory runs out.",
        ),
        AlertRule(
            "InfinibandErrors", "warning", "rate(node_infiniband_port_errors_received_total[5m]) > 0", "5m",
            "Port {port} of {device} on {instance} receives damaged packets",
            "The cause is usually a cable, a transceiver or a switch port.",
            "Reseat or replace the cable; `slipway nodes bisect` finds the slow pair.",
        ),
        AlertRule(
            "InfinibandDown", "critical", "node_infiniband_state_id != 4", "0s",
            "Port {port} of {device} on {instance} is not active",
            "Trainings on this node cannot use this rail.",
            "Look at the cable and at the subnet manager.",
        ),
        AlertRule(
            "DiskSlow", "warning",
            "rate(node_disk_read_time_seconds_total[5m]) / (rate(node_disk_reads_completed_total[5m]) > 0) > 0.005",
            "5m",
            "Reads from {device} on {instance} take longer than 5 ms",
            "The disk is busy or wears out.",
            "Look for the program that reads from it, and look at the disk's SMART data.",
        ),
        AlertRule(
            "HostMemoryLow", "critical", "node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes < 0.05", "2m",
            "Less than 5 % of the memory of {instance} is left",
            "The kernel first drops cached pages of shards, and then kills processes.",
            "Put fewer ranks or fewer loader workers on the node.",
        ),
        AlertRule(
            "CephUnhealthy", "critical", "ceph_health_status == 2", "0s",
            "Ceph reports an error",
            "Some files of the durable tier may be unreachable.",
            "Look at `ceph health detail`. Trainings wait for the tier and go on by themselves.",
        ),
        AlertRule(
            "CephNearlyFull", "warning", "ceph_cluster_total_used_bytes / ceph_cluster_total_bytes > 0.85", "5m",
            "Ceph is more than 85 % full",
            "At 95 % it refuses writes, and saves fail.",
            "Release checkpoints and snapshots, or add disks.",
        ),
        AlertRule(
            "CephSlow", "warning", "ceph_osd_commit_latency_ms > 50", "5m",
            "Writes to {ceph_daemon} take longer than 50 ms",
            "One slow disk slows all writes to its placement groups.",
            "Look at its disk, and remove the disk if it stays slow.",
        ),
    ),
)  # fmt: skip
