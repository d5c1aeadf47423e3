"""For each alert, series on which it fires and series on which it does not, in promtool's notation."""

from dataclasses import dataclass, field

Series = dict[str, str]
"""By series, its values: one a minute, `a+bxn` for n more values of a and b more each time."""


@dataclass(frozen=True)
class AlertCase:
    """Series of one alert."""

    fires: Series
    quiet: Series
    labels: dict[str, str] = field(default_factory=dict)
    """Of the alert that fires, without its severity."""
    at: str = "20m"
    """When it is looked at."""


def always(value: float) -> str:
    return f"{value}+0x100"


def _named(series: str, labels: dict[str, str]) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{series}{{{inside}}}"


def level(series: str, fires: float, quiet: float, at: str = "20m", **labels: str) -> AlertCase:
    """An alert about one series with these labels."""
    named = _named(series, labels)
    return AlertCase({named: always(fires)}, {named: always(quiet)}, labels, at)


def grows(series: str, **labels: str) -> AlertCase:
    """An alert about a counter that grows."""
    named = _named(series, labels)
    return AlertCase({named: "0+1x100"}, {named: always(7)}, labels)


def incident(kind: str) -> AlertCase:
    named = f'slipway_training_incidents{{training="t",kind="{kind}"}}'
    first = {named: "_x15 1+0x100"}
    return AlertCase(first, {named: always(1)}, {"training": "t", "kind": kind})


def _if(grows: bool) -> str:
    return "0+1x100" if grows else always(0)


def quantile(name: str, bucket: str) -> AlertCase:
    def seconds(below: str) -> Series:
        bounds = ("10.0", "20.0", "30.0", "60.0", "+Inf")
        return {
            _named(f"{name}_bucket", {"training": "t", "le": bound}): _if(float(bound) >= float(below))
            for bound in bounds
        }

    return AlertCase(seconds(bucket), seconds("10.0"), {"training": "t"}, "60m")


def section(name: str, high: float) -> AlertCase:
    def share(value: float) -> Series:
        spent = f'slipway_job_section_seconds_total{{training="t",section="{name}"}}'
        return {spent: f"0+{60 * value}x100", 'slipway_job_step_seconds_sum{training="t"}': "0+60x100"}

    return AlertCase(share(high), share(0.05), {"training": "t", "section": name}, "40m")


def rank_seconds(slow: float) -> Series:
    of = 'slipway_job_rank_own_seconds{{training="t",node="n",rank="{}"}}'
    return {of.format(rank): always(slow if rank == 3 else 1.0) for rank in range(4)}


GPU = {"Hostname": "h", "gpu": "0"}
DISK = {"instance": "i", "device": "nvme0n1"}
READY = 'slipway_node_ready{node="n"}'
STANDING = 'slipway_node_standing{{node="n",standing="{}"}}'
CASES = {
    "TrainingStandsStill": level("slipway_training_still_seconds", 301, 20, training="t"),
    "RankStandsStill": AlertCase(
        {'slipway_job_rank_still_seconds{training="t",node="n",rank="1"}': always(400)},
        {
            'slipway_job_rank_still_seconds{training="t",node="n",rank="1"}': always(400),
            'slipway_job_rank_phase{training="t",node="n",rank="1",phase="starting"}': always(1),
        },
        {"training": "t", "node": "n", "rank": "1"},
    ),
    "TrainingWaitsForNodes": level("slipway_training_waiting_seconds", 1801, 60, training="t"),
    "TrainingGivenUp": level("slipway_training_given_up", 1, 0, training="t"),
    "TrainingFailsAgain": level("slipway_training_failures_in_a_row", 2, 1, training="t"),
    "OutOfMemory": incident("out_of_memory_answered"),
    "Diverged": incident("diverged"),
    "SilentCorruption": incident("corruption"),
    "IncidentsPileUp": AlertCase(
        {'slipway_training_incidents{training="t",kind="machine"}': "0+1x100"},
        {'slipway_training_incidents{training="t",kind="machine"}': always(9)},
        {"training": "t"},
        "80m",
    ),
    "SlowProgress": AlertCase(
        {'slipway_job_tokens_per_second{training="t"}': "100+0x60 50+0x40"},
        {'slipway_job_tokens_per_second{training="t"}': "100+0x60 90+0x40"},
        {"training": "t"},
        "75m",
    ),
    "SlowRank": AlertCase(rank_seconds(1.4), rank_seconds(1.1), {"training": "t", "node": "n", "rank": "3"}),
    "CommunicationHigh": section("communication", 0.2),
    "DataWaitHigh": section("data", 0.2),
    "EttrLow": level("slipway_training_ettr_ratio", 0.5, 0.9, "40m", training="t", definition="window"),
    "ValidationLossRises": AlertCase(
        {'slipway_job_validation_loss{training="t"}': "2+0x30 3+0x70"},
        {'slipway_job_validation_loss{training="t"}': "3+0x30 2+0x70"},
        {"training": "t"},
        "50m",
    ),
    "BatchesSkipped": grows("slipway_job_skipped_batches_total", training="t"),
    "EventsLost": grows("slipway_job_events_lost_total", training="t"),
    "TrainingUnreadable": level("slipway_trainings", 1, 0, state="unreadable"),
    "CheckpointFails": grows("slipway_job_checkpoint_failures_total", training="t"),
    "CheckpointCopyFails": grows("slipway_job_copy_failures_total", training="t", tier="backup"),
    "CheckpointOldOnNvme": level("slipway_training_checkpoint_age_seconds", 1900, 900, training="t", tier="nvme"),
    "CheckpointOldOnDurable": level(
        "slipway_training_checkpoint_age_seconds", 3700, 1900, training="t", tier="durable"
    ),
    "CheckpointOldInBackup": level("slipway_training_checkpoint_age_seconds", 14500, 3700, training="t", tier="backup"),
    "CheckpointSaveSlow": quantile("slipway_job_checkpoint_save_seconds", "60.0"),
    "CheckpointLoadSlow": quantile("slipway_job_checkpoint_load_seconds", "30.0"),
    "CheckpointDamaged": level("slipway_training_checkpoints_damaged", 1, 0, training="t"),
    "NodeNotReady": AlertCase(
        {READY: always(0), STANDING.format("healthy"): always(1)},
        {READY: always(0), STANDING.format("quarantined"): always(1)},
        {"node": "n"},
    ),
    "NodeInRepair": AlertCase(
        {STANDING.format("repair"): always(1)},
        {STANDING.format("healthy"): always(1)},
        {"node": "n", "standing": "repair"},
    ),
    "NodeSuspect": AlertCase(
        {'slipway_node_evidence{node="n"}': always(1), READY: always(1)},
        {'slipway_node_evidence{node="n"}': always(0), READY: always(1)},
        {"node": "n"},
        "70m",
    ),
    "FewNodesReady": AlertCase(
        {'slipway_nodes{state="ready"}': always(8), 'slipway_nodes{state="lost"}': always(2)},
        {'slipway_nodes{state="ready"}': always(19), 'slipway_nodes{state="lost"}': always(1)},
    ),
    "ExporterDown": level("up", 0, 1, job="slipway", instance="i"),
    "SensorFails": level("slipway_sensor_failed", 1, 0, sensor="job_watch"),
    "SensorSilent": AlertCase(
        {
            'slipway_sensor_tick_age_seconds{sensor="s"}': always(400),
            'slipway_sensor_running{sensor="s"}': always(1),
        },
        {
            'slipway_sensor_tick_age_seconds{sensor="s"}': always(400),
            'slipway_sensor_running{sensor="s"}': always(0),
        },
        {"sensor": "s"},
    ),
    "SensorSlow": level("slipway_sensor_tick_seconds", 31, 3, sensor="s"),
    "DaemonSilent": level("slipway_daemon_heartbeat_age_seconds", 301, 20, daemon="SENSOR"),
    "EventLogBehind": level("slipway_event_log_lag_seconds", 301, 20),
    "RunsQueued": level("slipway_run_queue_seconds", 1801, 100),
    "PartUnreadable": level("slipway_unreadable", 1, 0, subject="fleet"),
    "ScrapeSlow": level("slipway_scrape_seconds", 6, 0.1),
    "TierNearlyFull": AlertCase(
        {'slipway_tier_free_bytes{tier="nvme"}': always(9), 'slipway_tier_size_bytes{tier="nvme"}': always(100)},
        {'slipway_tier_free_bytes{tier="nvme"}': always(11), 'slipway_tier_size_bytes{tier="nvme"}': always(100)},
        {"tier": "nvme"},
    ),
    "TierFull": AlertCase(
        {'slipway_tier_free_bytes{tier="nvme"}': always(2), 'slipway_tier_size_bytes{tier="nvme"}': always(100)},
        {'slipway_tier_free_bytes{tier="nvme"}': always(5), 'slipway_tier_size_bytes{tier="nvme"}': always(100)},
        {"tier": "nvme"},
    ),
    "TierSlow": level("slipway_tier_look_seconds", 0.02, 0.001, tier="durable"),
    "TrialsFail": AlertCase(
        {
            'slipway_sweep_trials{sweep="s",state="failed"}': always(3),
            'slipway_sweep_trials{sweep="s",state="completed"}': always(7),
        },
        {
            'slipway_sweep_trials{sweep="s",state="failed"}': always(1),
            'slipway_sweep_trials{sweep="s",state="completed"}': always(9),
        },
        {"sweep": "s", "state": "failed"},
    ),
    "SwitchStuck": level("slipway_served_switching", 1, 0, "40m", model="m"),
    "GpuHot": level("DCGM_FI_DEV_GPU_TEMP", 86, 84, **GPU),
    "GpuIdle": level("DCGM_FI_DEV_GPU_UTIL", 20, 90, **GPU),
    "GpuXid": level("DCGM_FI_DEV_XID_ERRORS", 79, 0, **GPU),
    "GpuMemoryError": grows("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", **GPU),
    "GpuThrottled": grows("DCGM_FI_DEV_THERMAL_VIOLATION", **GPU),
    "GpuMemoryNearlyFull": AlertCase(
        {
            'DCGM_FI_DEV_FB_USED{Hostname="h",gpu="0"}': always(99),
            'DCGM_FI_DEV_FB_FREE{Hostname="h",gpu="0"}': always(1),
        },
        {
            'DCGM_FI_DEV_FB_USED{Hostname="h",gpu="0"}': always(90),
            'DCGM_FI_DEV_FB_FREE{Hostname="h",gpu="0"}': always(10),
        },
        GPU,
    ),
    "InfinibandErrors": grows("node_infiniband_port_errors_received_total", instance="i", device="mlx5_0", port="1"),
    "InfinibandDown": level("node_infiniband_state_id", 1, 4, instance="i", device="mlx5_0", port="1"),
    "DiskSlow": AlertCase(
        {
            'node_disk_read_time_seconds_total{instance="i",device="nvme0n1"}': "0+1x100",
            'node_disk_reads_completed_total{instance="i",device="nvme0n1"}': "0+100x100",
        },
        {
            'node_disk_read_time_seconds_total{instance="i",device="nvme0n1"}': "0+0.1x100",
            'node_disk_reads_completed_total{instance="i",device="nvme0n1"}': "0+100x100",
        },
        DISK,
    ),
    "HostMemoryLow": AlertCase(
        {
            'node_memory_MemAvailable_bytes{instance="i"}': always(4),
            'node_memory_MemTotal_bytes{instance="i"}': always(100),
        },
        {
            'node_memory_MemAvailable_bytes{instance="i"}': always(40),
            'node_memory_MemTotal_bytes{instance="i"}': always(100),
        },
        {"instance": "i"},
    ),
    "CephUnhealthy": level("ceph_health_status", 2, 1),
    "CephNearlyFull": AlertCase(
        {"ceph_cluster_total_used_bytes": always(90), "ceph_cluster_total_bytes": always(100)},
        {"ceph_cluster_total_used_bytes": always(60), "ceph_cluster_total_bytes": always(100)},
    ),
    "CephSlow": level("ceph_osd_commit_latency_ms", 60, 5, ceph_daemon="osd.0"),
}
