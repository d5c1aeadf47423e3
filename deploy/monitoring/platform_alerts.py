"""Alerts about the fleet and about the platform's own processes."""

from slipway.deploy.monitoring.rule import AlertRule, RuleGroup

FLEET = RuleGroup(
    "slipway-fleet",
    "2s",
    (
        AlertRule(
            "NodeNotReady", "critical",
            'slipway_node_ready == 0 unless on (node) slipway_node_standing{standing=~"quarantined|diagnosing|repair"}',
            "0s",
            "Node {node} takes no work",
            "The node is lost, or somebody cordoned it. Its trainings go on automatically on other nodes.",
            "`slipway nodes show NODE` shows the reason. If the node is lost, look at the machine's console.",
        ),
        AlertRule(
            "NodeInRepair", "warning", 'slipway_node_standing{standing="repair"} == 1', "0s",
            "Node {node} has a fault and waits for a repair",
            "The diagnosis found a fault in its hardware.",
            "Repair it, then run `slipway nodes release NODE --why ...`.",
        ),
        AlertRule(
            "NodeSuspect", "warning", "slipway_node_evidence > 0 and on (node) slipway_node_ready == 1", "1h",
            "There has been evidence against node {node} for an hour",
            "The node still works. With more evidence, the platform takes it out of service.",
            "`slipway nodes show NODE` lists the evidence.",
        ),
        AlertRule(
            "FewNodesReady", "critical", "slipway:nodes_ready:ratio < 0.9", "1m",
            "More than a tenth of the nodes take no work",
            "The spare capacity is used up: trainings shrink or wait.",
            "Look for a common cause of the lost nodes: a rack, a switch, a power feed.",
        ),
    ),
)  # fmt: skip
PLATFORM = RuleGroup(
    "slipway-platform",
    "5s",
    (
        AlertRule(
            "ExporterDown", "critical", 'up{job=~"slipway.*"} == 0', "1m",
            "The metrics of {job} at {instance} cannot be scraped",
            "The process has ended or is unreachable. All other alerts about it cannot fire.",
            "Look at the process and at the network policy between it and Prometheus.",
        ),
        AlertRule(
            "SensorFails", "critical", "slipway_sensor_failed == 1", "1m",
            "The sensor {sensor} fails",
            "The sensor's work waits until it succeeds.",
            "Read the error on the sensor's page. The cause affects the whole sensor: a problem of one training"
            " does not fail it.",
        ),
        AlertRule(
            "SensorSilent", "critical",
            "slipway_sensor_tick_age_seconds > 300 and on (sensor) slipway_sensor_running == 1", "0s",
            "The sensor {sensor} has not ticked for 5 minutes",
            "The daemon or the code server hangs or has ended.",
            "Look at the logs of the daemon and the code server, and restart both. Trainings go on meanwhile.",
        ),
        AlertRule(
            "SensorSlow", "warning", "slipway_sensor_tick_seconds > 30", "5m",
            "A tick of the sensor {sensor} takes longer than 30 s",
            "The sensor reacts late to changes.",
            "Look at the latency of the durable tier and of the database.",
        ),
        AlertRule(
            "DaemonSilent", "critical", "slipway_daemon_heartbeat_age_seconds > 300", "0s",
            "The daemon {daemon} has given no sign of life for 5 minutes",
            "No run starts, and no sensor ticks. Running trainings go on.",
            "Look at the daemon's log, and restart it.",
        ),
        AlertRule(
            "EventLogBehind", "warning", "slipway_event_log_lag_seconds > 300", "0s",
            "A checkpoint has been missing in the UI for 5 minutes",
            "The checkpoint itself is safe; the sensor that shows it is behind.",
            "Look at the sensor checkpoint_arrivals, and at the database.",
        ),
        AlertRule(
            "RunsQueued", "warning", "slipway_run_queue_seconds > 1800", "0s",
            "A run has been queued for half an hour",
            "The maximum number of runs of its kind is in progress, or the launcher starts no run.",
            "Look at the runs in progress with the same tag `slipway/kind`, and at `runs.maxConcurrent`.",
        ),
        AlertRule(
            "PartUnreadable", "warning", "slipway_unreadable == 1", "2m",
            "The exporter cannot read {subject}",
            "Its metrics are missing, and alerts about it may not fire.",
            "Run `slipway metrics show`. The usual cause is a missing mount or an unreachable service.",
        ),
        AlertRule(
            "ScrapeSlow", "warning", "slipway_scrape_seconds > 5", "10m",
            "The platform takes longer than 5 s to read its metrics",
            "The durable tier or the database is slow.",
            "Look at the latency of the tiers on the dashboard Cluster.",
        ),
        AlertRule(
            "TierNearlyFull", "warning", "slipway:tier_free:ratio < 0.1", "1m",
            "Less than a tenth of the tier {tier} is free",
            "Retention removes only files to which nothing refers.",
            "`slipway checkpoints list` and `slipway data gc` show what you can remove.",
        ),
        AlertRule(
            "TierFull", "critical", "slipway:tier_free:ratio < 0.03", "0s",
            "Less than 3 % of the tier {tier} is free",
            "Soon, checkpoints can no longer be saved.",
            "Release checkpoints or extend the file system now.",
        ),
        AlertRule(
            "TierSlow", "warning", "slipway_tier_look_seconds > 0.005", "5m",
            "A file operation on the tier {tier} takes longer than 5 ms",
            "The metadata server is busy, or the network to it is.",
            "Look at the storage on the dashboard Cluster.",
        ),
        AlertRule(
            "TrialsFail", "warning",
            'slipway_sweep_trials{state="failed"} / on (sweep) group_left sum by (sweep) (slipway_sweep_trials) > 0.2',
            "0s",
            "More than a fifth of the trials of sweep {sweep} have failed",
            "Some of the sweep's parameters cannot be trained, or the code has an error.",
            "`slipway sweeps show SWEEP` lists the failures by reason.",
        ),
        AlertRule(
            "SwitchStuck", "warning", "slipway_served_switching == 1", "30m",
            "Model {model} has been changing its version for half an hour",
            "The new version is not ready, or the comparison has too few requests.",
            "`slipway models served` shows why it waits. `slipway models serve MODEL --back` ends the switch.",
        ),
    ),
)  # fmt: skip
