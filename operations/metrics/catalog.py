"""Catalogue: every metric that the platform exports. The table in docs/monitoring.md is made from it.

Labels are bounded: recipes, nodes, tiers, sensors and buckets are few; trainings have series of their own while a duty
towards them is open, and the newest `expose.MAX_ENDED_SERIES` of those that are over.
"""

from slipway.trainer.base.exposition import Metric

OF = ("training",)
TRAININGS = Metric("slipway_trainings", "gauge", "Trainings by state", ("state",))
TRAINING = Metric("slipway_training_info", "gauge", "1 for each training, with its recipe", (*OF, "recipe"))
SHOULD_RUN = Metric("slipway_training_wanted", "gauge", "1 while it should run", OF)
RUNNING = Metric("slipway_training_running", "gauge", "1 while an incarnation is claimed and has not ended", OF)
INCARNATION = Metric("slipway_training_incarnation", "gauge", "The number of its newest start", OF)
STEP = Metric("slipway_training_step", "gauge", "The last step that is known to be done", OF)
STEPS = Metric("slipway_training_planned_steps", "gauge", "The number of its last step", OF)
NODES_OF = Metric("slipway_training_nodes", "gauge", "Nodes of its newest incarnation", OF)
STILL = Metric(
    "slipway_training_still_seconds", "gauge", "Seconds for which no rank of a running training was seen to move", OF
)
WAITING = Metric(
    "slipway_training_waiting_seconds",
    "gauge",
    "Seconds since it was wanted or claimed, before its first heartbeat",
    OF,
)
STAGED = Metric("slipway_training_staged_bytes", "gauge", "Bytes that ranks have staged so far in this phase", OF)
SPENT = Metric("slipway_training_spent_seconds", "gauge", "Seconds by what they were spent on", (*OF, "bucket"))
ETTR = Metric(
    "slipway_training_ettr_ratio", "gauge", "Effective training time: meta, bytedance, or window (an hour)",
    (*OF, "definition"),
)  # fmt: skip
GOODPUT = Metric("slipway_training_goodput_ratio", "gauge", "Kept steps without their wait for data, of all time", OF)
MFU = Metric("slipway_training_mfu_ratio", "gauge", "Mean MFU of all time: lost time counts as 0", OF)
FAILURES = Metric("slipway_training_failures", "gauge", "Incarnations that failed", OF)
FAILURES_IN_A_ROW = Metric(
    "slipway_training_failures_in_a_row", "gauge", "Counted failures in a row without a checkpoint of their own", OF
)
GIVEN_UP = Metric("slipway_training_given_up", "gauge", "1 where it failed and no further start is due", OF)
INCIDENTS = Metric("slipway_training_incidents", "gauge", "Incidents on record by class", (*OF, "kind"))
CHECKPOINTS = Metric("slipway_training_checkpoints", "gauge", "Checkpoints that a tier holds", (*OF, "tier"))
CHECKPOINT_STEP = Metric("slipway_training_checkpoint_step", "gauge", "The step of its newest checkpoint", OF)
CHECKPOINT_AGE = Metric(
    "slipway_training_checkpoint_age_seconds", "gauge", "Age of the newest checkpoint that a tier holds, while it runs",
    (*OF, "tier"),
)  # fmt: skip
CHECKPOINTS_DAMAGED = Metric("slipway_training_checkpoints_damaged", "gauge", "Records and copies found damaged", OF)
DUTIES = Metric("slipway_duties_open", "gauge", "Duties that the control plane owes to trainings", ("duty",))
UNREADABLE = Metric("slipway_unreadable", "gauge", "1 for a subject that this scrape could not read", ("subject",))
NODES = Metric("slipway_nodes", "gauge", "Nodes of the fleet by state", ("state",))
NODE_READY = Metric("slipway_node_ready", "gauge", "1 while a node takes new work", ("node",))
NODE_STANDING = Metric("slipway_node_standing", "gauge", "1 for the standing of a node", ("node", "standing"))
NODE_EVIDENCE = Metric("slipway_node_evidence", "gauge", "Pieces of evidence against a node", ("node",))
SWEEPS = Metric("slipway_sweeps", "gauge", "Sweeps by state", ("state",))
TRIALS = Metric("slipway_sweep_trials", "gauge", "Trials of a sweep by state", ("sweep", "state"))
BEST = Metric("slipway_sweep_best_value", "gauge", "The lowest value that any trial reported", ("sweep",))
SERVED = Metric("slipway_served_version", "gauge", "The version that all of a model's traffic goes to", ("model",))
SWITCHING = Metric("slipway_served_switching", "gauge", "1 while a model changes to another version", ("model",))
TIER_SIZE = Metric("slipway_tier_size_bytes", "gauge", "Size of the file system of a tier", ("tier",))
TIER_FREE = Metric("slipway_tier_free_bytes", "gauge", "Bytes that are free on the file system of a tier", ("tier",))
TIER_LATENCY = Metric("slipway_tier_look_seconds", "gauge", "Seconds that a look into a tier's folder took", ("tier",))
TICK_AGE = Metric("slipway_sensor_tick_age_seconds", "gauge", "Seconds since a sensor's last tick", ("sensor",))
TICK_SECONDS = Metric("slipway_sensor_tick_seconds", "gauge", "Seconds that a sensor's last tick took", ("sensor",))
TICK_FAILED = Metric("slipway_sensor_failed", "gauge", "1 while a sensor's last tick is a failure", ("sensor",))
SENSOR_ON = Metric("slipway_sensor_running", "gauge", "1 while a sensor is switched on", ("sensor",))
DAEMON_AGE = Metric("slipway_daemon_heartbeat_age_seconds", "gauge", "Age of a daemon's heartbeat", ("daemon",))
RUNS = Metric("slipway_runs", "gauge", "Unfinished runs of Dagster by status", ("status",))
RUN_QUEUE = Metric("slipway_run_queue_seconds", "gauge", "How long the oldest queued run has waited")
RECORDS = Metric("slipway_event_log_records_total", "counter", "Records that the event log was given")
LAG = Metric(
    "slipway_event_log_lag_seconds",
    "gauge",
    "For how long the event log has lacked the oldest checkpoint that it lacks",
)
SCRAPE = Metric("slipway_scrape_seconds", "gauge", "Seconds that it took to read what this scrape says")
READ = Metric("slipway_trainings_read", "gauge", "Trainings whose records this scrape read")
PLATFORM_METRICS = (
    TRAININGS, TRAINING, SHOULD_RUN, RUNNING, INCARNATION, STEP, STEPS, NODES_OF, STILL, WAITING, STAGED, SPENT, ETTR,
    GOODPUT, MFU, FAILURES, FAILURES_IN_A_ROW, GIVEN_UP, INCIDENTS, CHECKPOINTS, CHECKPOINT_STEP, CHECKPOINT_AGE,
    CHECKPOINTS_DAMAGED, DUTIES, UNREADABLE, NODES, NODE_READY, NODE_STANDING, NODE_EVIDENCE, SWEEPS, TRIALS, BEST,
    SERVED, SWITCHING, TIER_SIZE, TIER_FREE, TIER_LATENCY, TICK_AGE, TICK_SECONDS, TICK_FAILED, SENSOR_ON, DAEMON_AGE,
    RUNS, RUN_QUEUE, RECORDS, LAG, SCRAPE, READ,
)  # fmt: skip
"""All that the platform exports."""
