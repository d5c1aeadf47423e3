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
            "It is lost, or closed by somebody else. Trainings on it go on elsewhere by themselves.",
            "`slipway nodes show NODE` says why; a node that is lost needs its machine's console.",
        ),
        AlertRule(
            "NodeInRepair", "warning", 'slipway_node_standing{standing="repair"} == 1', "0s",
            "Node {node} has a fault and waits for a repair",
            "The diagnosis found a fault in its hardware.",
            "Repair it, then run `slipway nodes release NODE --why ...`.",
        ),
        AlertRule(
            "NodeSuspect", "warning", "slipway_node_evidence > 0 and on (node) slipway_node_ready == 1", "1h",
            "Something has spoken against node {node} for an hour",
            "It works on; more evidence takes it out of service.",
            "`slipway nodes show NODE` lists the evidence.",
        ),
        AlertRule(
            "FewNodesReady", "critical", "slipway:nodes_ready:ratio < 0.9", "1m",
            "More than a tenth of the nodes take no work",
            "The spare capacity is used up: trainings shrink or wait.",
            "Look for what the lost nodes share: a rack, a switch, a power feed.",
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
            "The process is gone or cannot be reached; all other alerts about it are silent.",
            "Look at the process and at the network policy between it and Prometheus.",
        ),
        AlertRule(
            "SensorFails", "critical", "slipway_sensor_failed == 1", "1m",
            "The sensor {sensor} fails",
            "What it looks after waits: the page of the sensor has the error.",
            "Read the error on the sensor's page; one subject alone never fails a whole sensor.",
        ),
        AlertRule(
            "SensorSilent", "critical",
            "slipway_sensor_tick_age_seconds > 300 and on (sensor) slipway_sensor_running == 1", "0s",
            "The sensor {sensor} has not ticked for 5 minutes",
            "The daemon or the code server hangs or is gone.",
            "Look at the daemon's and the code server's logs, and start them anew: trainings go on without them.",
        ),
        AlertRule(
            "SensorSlow", "warning", "slipway_sensor_tick_seconds > 30", "5m",
            "A tick of the sensor {sensor} takes longer than 30 s",
            "What it reacts to is seen late.",
            "Look at the latency of the durable tier and of the database.",
        ),
        AlertRule(
            "DaemonSilent", "critical", "slipway_daemon_heartbeat_age_seconds > 300", "0s",
            "The daemon {daemon} has given no sign of life for 5 minutes",
            "Nothing is started, and no sensor ticks. Running trainings go on.",
            "Look at the daemon's log and start it anew.",
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
            "The limit of runs of its kind is reached, or the launcher starts none.",
            "Look at the runs in progress with the same tag `slipway/kind`, and at `runs.maxConcurrent`.",
        ),
        AlertRule(
            "PartUnreadable", "warning", "slipway_unreadable == 1", "2m",
            "The exporter cannot read {subject}",
            "What it exports of it is missing; nothing is concluded from that.",
            "Try `slipway metrics show`; most often a mount or a service is away.",
        ),
        AlertRule(
            "ScrapeSlow", "warning", "slipway_scrape_seconds > 5", "10m",
            "The platform takes longer than 5 s to read what it exports",
            "The durable tier or the database is slow.",
            "Look at the latency of the tiers on the dashboard Cluster.",
        ),
        AlertRule(
            "TierNearlyFull", "warning", "slipway:tier_free:ratio < 0.1", "1m",
            "Less than a tenth of the tier {tier} is free",
            "Retention removes what nothing refers to, and no more.",
            "`slipway checkpoints list` and `slipway data gc` show what may go.",
        ),
        AlertRule(
            "TierFull", "critical", "slipway:tier_free:ratio < 0.03", "0s",
            "Less than 3 % of the tier {tier} is free",
            "Saves will fail next.",
            "Release checkpoints or extend the file system now.",
        ),
        AlertRule(
            "TierSlow", "warning", "slipway_tier_look_seconds > 0.005", "5m",
            "A look into the tier {tier} takes longer than 5 ms",
            "The metadata server is busy, or the network to it is.",
            "Look at the storage on the dashboard Cluster.",
        ),
        AlertRule(
            "TrialsFail", "warning",
            'slipway_sweep_trials{state="failed"} / on (sweep) group_left sum by (sweep) (slipway_sweep_trials) > 0.2',
            "0s",
            "More than a fifth of the trials of sweep {sweep} have failed",
            "A part of the space cannot be trained, or the code is wrong.",
            "`slipway sweeps show SWEEP` lists the failures by reason.",
        ),
        AlertRule(
            "SwitchStuck", "warning", "slipway_served_switching == 1", "30m",
            "Model {model} has been changing its version for half an hour",
            "The new version is not ready, or the comparison has too few requests.",
            "`slipway models served` says what it waits for; `slipway models serve MODEL --back` ends it.",
        ),
    ),
)  # fmt: skip
