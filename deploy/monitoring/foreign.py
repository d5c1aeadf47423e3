"""The metrics of other exporters that rules and dashboards use, with a description of each."""

DCGM = {
    "DCGM_FI_DEV_GPU_UTIL": "GPU use",
    "DCGM_FI_DEV_FB_USED": "GPU memory",
    "DCGM_FI_DEV_FB_FREE": "GPU memory",
    "DCGM_FI_DEV_GPU_TEMP": "GPU temperature",
    "DCGM_FI_DEV_POWER_USAGE": "GPU power",
    "DCGM_FI_DEV_SM_CLOCK": "GPU throttling",
    "DCGM_FI_DEV_THERMAL_VIOLATION": "GPU throttling",
    "DCGM_FI_DEV_XID_ERRORS": "GPU errors",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "GPU errors",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "GPU use",
    "DCGM_FI_PROF_NVLINK_TX_BYTES": "GPU links",
    "DCGM_FI_PROF_NVLINK_RX_BYTES": "GPU links",
}
NODE = {
    "node_cpu_seconds_total": "CPU",
    "node_memory_MemAvailable_bytes": "memory",
    "node_memory_MemTotal_bytes": "memory",
    "node_filesystem_avail_bytes": "disk",
    "node_filesystem_size_bytes": "disk",
    "node_disk_reads_completed_total": "file system IOPS",
    "node_disk_writes_completed_total": "file system IOPS",
    "node_disk_io_now": "file system queue",
    "node_disk_read_time_seconds_total": "file system latency",
    "node_disk_read_bytes_total": "disk",
    "node_disk_written_bytes_total": "disk",
    "node_network_receive_bytes_total": "network",
    "node_network_transmit_bytes_total": "network",
    "node_infiniband_port_data_received_bytes_total": "InfiniBand throughput",
    "node_infiniband_port_data_transmitted_bytes_total": "InfiniBand throughput",
    "node_infiniband_port_errors_received_total": "InfiniBand loss",
    "node_infiniband_port_discards_transmitted_total": "InfiniBand loss",
    "node_infiniband_port_transmit_wait_total": "InfiniBand latency",
    "node_infiniband_state_id": "InfiniBand state",
}
CEPH = {
    "ceph_health_status": "storage",
    "ceph_cluster_total_bytes": "storage",
    "ceph_cluster_total_used_bytes": "storage",
    "ceph_osd_commit_latency_ms": "file system latency",
    "ceph_osd_op_r": "file system IOPS",
    "ceph_osd_op_w": "file system IOPS",
}
FOREIGN = {**DCGM, **NODE, **CEPH}
ALWAYS = {"up"}
"""The metrics that Prometheus itself adds."""
