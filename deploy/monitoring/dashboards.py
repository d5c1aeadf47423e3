"""The six dashboards: cluster, GPU, training, communication, checkpoints, goodput."""

from slipway.deploy.monitoring.panels import HOST, NODE, TRAINING, Dashboard, number, series, table

OF = '{training=~"$training"}'
AT = '{node=~"$node"}'
ON = '{Hostname=~"$host"}'
PER_GPU = "{Hostname} GPU {gpu}"
RATE = "[5m]"
INFINIBAND = "node_infiniband_port"

CLUSTER = Dashboard(
    "slipway-cluster",
    "Slipway: cluster",
    (NODE,),
    (
        number("Nodes ready", "percentunit", "slipway:nodes_ready:ratio"),
        series("Nodes by state", "short", ("slipway_nodes", "{state}")),
        table("Nodes and their standing", f"slipway_node_standing{AT} == 1"),
        series("Evidence against nodes", "short", (f"slipway_node_evidence{AT}", "{node}")),
        number("Trainings by state", "short", "sum by (state) (slipway_trainings)"),
        series("GPUs in use", "percent", "avg(DCGM_FI_DEV_GPU_UTIL)"),
        series("Duties of the control plane", "short", ("slipway_duties_open", "{duty}")),
        series("Age of sensors' ticks", "s", ("slipway_sensor_tick_age_seconds", "{sensor}")),
        series("Seconds of sensors' ticks", "s", ("slipway_sensor_tick_seconds", "{sensor}")),
        series("Age of daemons' heartbeats", "s", ("slipway_daemon_heartbeat_age_seconds", "{daemon}")),
        series("Runs", "short", ("slipway_runs", "{status}")),
        series("Wait of the oldest queued run", "s", "slipway_run_queue_seconds"),
        series("Event log: records a second", "short", f"rate(slipway_event_log_records_total{RATE})"),
        series("Event log: lag", "s", "slipway_event_log_lag_seconds"),
        series("Tiers: free", "percentunit", ("slipway:tier_free:ratio", "{tier}")),
        series("Tiers: seconds of a look", "s", ("slipway_tier_look_seconds", "{tier}")),
        series("Sweeps: trials", "short", ("sum by (sweep, state) (slipway_sweep_trials)", "{sweep} {state}")),
        series("Sweeps: best value", "short", ("slipway_sweep_best_value", "{sweep}")),
        table("Served versions", "slipway_served_version"),
        series(
            "CPU use",
            "percentunit",
            (f'1 - avg by (instance) (rate(node_cpu_seconds_total{{mode="idle"}}{RATE}))', "{instance}"),
        ),
        series("Memory left", "bytes", ("node_memory_MemAvailable_bytes", "{instance}")),
        series(
            "Disks: free",
            "percentunit",
            ("node_filesystem_avail_bytes / node_filesystem_size_bytes", "{instance} {mountpoint}"),
        ),
        series(
            "Disks: operations",
            "iops",
            (f"rate(node_disk_reads_completed_total{RATE})", "{instance} {device} read"),
            (f"rate(node_disk_writes_completed_total{RATE})", "{instance} {device} write"),
        ),
        series(
            "Disks: throughput",
            "Bps",
            (f"rate(node_disk_read_bytes_total{RATE})", "{instance} {device} read"),
            (f"rate(node_disk_written_bytes_total{RATE})", "{instance} {device} written"),
        ),
        series("Disks: queue", "short", ("node_disk_io_now", "{instance} {device}")),
        series(
            "Network",
            "Bps",
            (f"rate(node_network_receive_bytes_total{RATE})", "{instance} {device} in"),
            (f"rate(node_network_transmit_bytes_total{RATE})", "{instance} {device} out"),
        ),
        series("Ceph: used", "percentunit", "ceph_cluster_total_used_bytes / ceph_cluster_total_bytes"),
        series(
            "Ceph: operations", "iops", f"sum(rate(ceph_osd_op_r{RATE}))", f"sum(rate(ceph_osd_op_w{RATE}))"
        ),
        series("Ceph: latency of writes", "ms", ("ceph_osd_commit_latency_ms", "{ceph_daemon}")),
        series("Seconds of a scrape", "s", "slipway_scrape_seconds"),
    ),
)  # fmt: skip
GPU = Dashboard(
    "slipway-gpu",
    "Slipway: GPU",
    (HOST, TRAINING),
    (
        series("Use", "percent", (f"DCGM_FI_DEV_GPU_UTIL{ON}", PER_GPU)),
        series("Tensor cores", "percentunit", (f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{ON}", PER_GPU)),
        series("Memory", "short", (f"DCGM_FI_DEV_FB_USED{ON}", PER_GPU), help="In MiB."),
        series("Temperature", "celsius", (f"DCGM_FI_DEV_GPU_TEMP{ON}", PER_GPU)),
        series("Power", "watt", (f"DCGM_FI_DEV_POWER_USAGE{ON}", PER_GPU)),
        series("Clock, MHz", "short", (f"DCGM_FI_DEV_SM_CLOCK{ON}", PER_GPU)),
        series("Throttled by heat", "short", (f"rate(DCGM_FI_DEV_THERMAL_VIOLATION{ON}{RATE})", PER_GPU)),
        series("Xid", "none", (f"DCGM_FI_DEV_XID_ERRORS{ON}", PER_GPU)),
        series("Uncorrectable memory errors", "short", (f"increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{ON}[1h])", PER_GPU)),
        series(
            "NVLink",
            "Bps",
            (f"DCGM_FI_PROF_NVLINK_TX_BYTES{ON}", f"{PER_GPU} out"),
            (f"DCGM_FI_PROF_NVLINK_RX_BYTES{ON}", f"{PER_GPU} in"),
        ),
        series("Use, by training", "percentunit", (f"slipway_job_gpu_use_ratio{OF}", "{training}")),
        series(
            "Memory, by training",
            "percentunit",
            (f"slipway_job_gpu_memory_bytes{OF} / slipway_job_gpu_memory_size_bytes{OF}", "{training}"),
        ),
        series("Allocations tried again", "short", (f"slipway_job_gpu_memory_retries_total{OF}", "{training}")),
    ),
)  # fmt: skip
TRAININGS = Dashboard(
    "slipway-training",
    "Slipway: training",
    (TRAINING,),
    (
        table("Trainings", f"slipway_training_info{OF}"),
        series("Step", "short", (f"slipway_training_step{OF}", "{training}")),
        series(
            "Done", "percentunit", (f"slipway_training_step{OF} / slipway_training_planned_steps{OF}", "{training}")
        ),
        series(
            "Loss",
            "short",
            (f"slipway_job_loss{OF}", "{training}"),
            (f"slipway_job_validation_loss{OF}", "{training} validation"),
        ),
        series("Accuracy", "percentunit", (f"slipway_job_accuracy_ratio{OF}", "{training}")),
        series("Gradient norm", "short", (f"slipway_job_gradient_norm{OF}", "{training}")),
        series("Learning rate", "short", (f"slipway_job_learning_rate{OF}", "{training}")),
        series("Tokens a second", "short", (f"slipway_job_tokens_per_second{OF}", "{training}")),
        series("Samples a second", "short", (f"slipway_job_samples_per_second{OF}", "{training}")),
        series("FLOP a second", "short", (f"slipway_job_flops_per_second{OF}", "{training}")),
        series("MFU", "percentunit", (f"slipway_job_mfu_ratio{OF}", "{training}")),
        series("Tokens so far", "short", (f"slipway_job_tokens_total{OF}", "{training}")),
        series(
            "Seconds of a step",
            "s",
            (f"histogram_quantile(0.5, sum by (training, le) (rate(slipway_job_step_seconds_bucket{OF}{RATE})))",
             "{training} median"),
            (f"histogram_quantile(0.99, sum by (training, le) (rate(slipway_job_step_seconds_bucket{OF}{RATE})))",
             "{training} p99"),
        ),
        series("What the steps' time goes into", "percentunit",
               (f"slipway:job_section:ratio{OF}", "{training} {section}")),
        series("What bounds it", "percentunit", (f"slipway_job_bound_ratio{OF}", "{training} {bound}")),
        series("Step of each rank", "short", (f"slipway_job_rank_step{OF}", "{training} {node} rank {rank}")),
        series("Own seconds of ranks", "s", (f"slipway_job_rank_own_seconds{OF}", "{training} {node} rank {rank}")),
        series("Ranks that stand still", "s", (f"slipway_job_rank_still_seconds{OF}", "{training} {node} rank {rank}")),
        series("Phases", "short", (f"sum by (training, phase) (slipway_job_rank_phase{OF})", "{training} {phase}")),
        series("Skipped batches", "short", (f"slipway_job_skipped_batches_total{OF}", "{training}")),
        series("Busy cores of rank 0", "short", (f"slipway_job_cpu_cores{OF}", "{training}")),
        series("Host memory left", "percentunit", (f"slipway_job_host_memory_free_ratio{OF}", "{training}")),
    ),
)  # fmt: skip
COMMUNICATION = Dashboard(
    "slipway-communication",
    "Slipway: communication",
    (TRAINING,),
    (
        series("Share of a step", "percentunit",
               ('slipway:job_section:ratio{section="communication",training=~"$training"}', "{training}")),
        series(
            "Seconds in a step",
            "s",
            ("histogram_quantile(0.5, sum by (training, le) (rate(slipway_job_communication_seconds_bucket"
             f"{OF}{RATE})))", "{training} median"),
            ("histogram_quantile(0.99, sum by (training, le) (rate(slipway_job_communication_seconds_bucket"
             f"{OF}{RATE})))", "{training} p99"),
        ),
        series("Ranks", "short", (f"slipway_job_ranks{OF}", "{training}")),
        series("Times that all ranks met", "short", (f"slipway_job_generations_total{OF}", "{training}")),
        series("Slowest rank over the median", "percentunit",
               (f"max by (training) (slipway_job_rank_own_seconds{OF})"
                f" / quantile by (training) (0.5, slipway_job_rank_own_seconds{OF})", "{training}")),
        series(
            "InfiniBand: throughput",
            "Bps",
            (f"rate({INFINIBAND}_data_received_bytes_total{RATE})", "{instance} {device} in"),
            (f"rate({INFINIBAND}_data_transmitted_bytes_total{RATE})", "{instance} {device} out"),
        ),
        series(
            "InfiniBand: loss",
            "short",
            (f"rate({INFINIBAND}_errors_received_total{RATE})", "{instance} {device} damaged"),
            (f"rate({INFINIBAND}_discards_transmitted_total{RATE})", "{instance} {device} discarded"),
        ),
        series("InfiniBand: waits", "short", (f"rate({INFINIBAND}_transmit_wait_total{RATE})", "{instance} {device}"),
               help="Ticks in which data was ready and could not be sent: congestion, which is what latency shows."),
        series("InfiniBand: ports that are active", "short", 'count(node_infiniband_state_id == 4)'),
    ),
)  # fmt: skip
CHECKPOINTS = Dashboard(
    "slipway-checkpoints",
    "Slipway: checkpoints",
    (TRAINING,),
    (
        series("Age of the newest", "s", (f"slipway_training_checkpoint_age_seconds{OF}", "{training} {tier}")),
        series("Number", "short", (f"slipway_training_checkpoints{OF}", "{training} {tier}")),
        series(
            "Steps since the newest",
            "short",
            (f"slipway_training_step{OF} - slipway_training_checkpoint_step{OF}", "{training}"),
        ),
        series("Seconds of a save, p90", "s", (f"slipway:checkpoint_save_seconds:p90{OF}", "{training}")),
        series("Seconds of a restore, p90", "s",
               ("histogram_quantile(0.9, sum by (training, le) "
                f"(slipway_job_checkpoint_load_seconds_bucket{OF}))", "{training}"),
               help="Of all restores: in most half hours there is none."),
        series("Steps wait for saves", "percentunit",
               (f"rate(slipway_job_checkpoint_blocked_seconds_total{OF}{RATE})", "{training}")),
        series("Bytes saved", "Bps", (f"rate(slipway_job_checkpoint_bytes_total{OF}{RATE})", "{training}")),
        series("Bytes copied", "Bps", (f"rate(slipway_job_copied_bytes_total{OF}{RATE})", "{training} {tier}")),
        series("Copies", "short", (f"slipway_job_copies_total{OF}", "{training} {tier}")),
        series("Saves that failed", "short", (f"slipway_job_checkpoint_failures_total{OF}", "{training}")),
        series("Copies that failed", "short", (f"slipway_job_copy_failures_total{OF}", "{training} {tier}")),
        series("Damaged", "short", (f"slipway_training_checkpoints_damaged{OF}", "{training}")),
    ),
)  # fmt: skip
GOODPUT = Dashboard(
    "slipway-goodput",
    "Slipway: goodput",
    (TRAINING,),
    (
        number("ETTR of all trainings", "percentunit", "slipway:ettr:ratio"),
        number("Goodput of all trainings", "percentunit", "slipway:goodput:ratio"),
        number("Tokens a second of all trainings", "short", "slipway:tokens_per_second:sum"),
        series("ETTR", "percentunit", (f"slipway_training_ettr_ratio{OF}", "{training} {definition}")),
        series("Goodput", "percentunit", (f"slipway_training_goodput_ratio{OF}", "{training}")),
        series("MFU of all time", "percentunit", (f"slipway_training_mfu_ratio{OF}", "{training}")),
        series("Seconds by cause", "s", (f"slipway_training_spent_seconds{OF}", "{training} {bucket}")),
        series("Lost seconds of all trainings", "s", ("slipway:lost_seconds:sum", "{bucket}")),
        series("Incidents by class", "short", (f"sum by (kind) (slipway_training_incidents{OF})", "{kind}")),
        series("Starts", "short", (f"slipway_training_incarnation{OF}", "{training}")),
        series("Failures in a row", "short", (f"slipway_training_failures_in_a_row{OF}", "{training}")),
        series("Waits for processes", "s", (f"slipway_training_waiting_seconds{OF}", "{training}")),
    ),
)  # fmt: skip
DASHBOARDS = (CLUSTER, GPU, TRAININGS, COMMUNICATION, CHECKPOINTS, GOODPUT)
