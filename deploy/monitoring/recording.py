"""The recorded series, which several dashboards and alerts use."""

from slipway.deploy.monitoring.rule import RecordingRule, RuleGroup
from slipway.trainer.record.accounting import buckets

PRODUCTIVE_BUCKETS = "|".join(buckets.PRODUCTIVE)
STEPPING = "steps|communication"
RECORDING = RuleGroup(
    "slipway-recording",
    "15s",
    (
        RecordingRule(
            "slipway:ettr:ratio",
            f'sum(slipway_training_spent_seconds{{bucket=~"{PRODUCTIVE_BUCKETS}"}})'
            ' / (sum(slipway_training_spent_seconds{bucket!="stopped"}) > 0)',
            "ETTR of all trainings together, by Meta's definition",
        ),
        RecordingRule(
            "slipway:goodput:ratio",
            f'sum(slipway_training_spent_seconds{{bucket=~"{STEPPING}"}}) / (sum(slipway_training_spent_seconds) > 0)',
            "Goodput of all trainings together: kept steps without their wait for data, of all time",
        ),
        RecordingRule(
            "slipway:ettr_by_training:ratio",
            f'sum by (training) (slipway_training_spent_seconds{{bucket=~"{PRODUCTIVE_BUCKETS}"}})'
            ' / (sum by (training) (slipway_training_spent_seconds{bucket!="stopped"}) > 0)',
            "ETTR of each training, by Meta's definition",
        ),
        RecordingRule(
            "slipway:lost_seconds:sum",
            f'sum by (bucket) (slipway_training_spent_seconds{{bucket!~"{PRODUCTIVE_BUCKETS}|stopped"}})',
            "Seconds of all trainings that were no kept steps, by what they were spent on",
        ),
        RecordingRule(
            "slipway:job_section:ratio",
            "sum by (training, section) (rate(slipway_job_section_seconds_total[5m]))"
            " / on (training) group_left sum by (training) (rate(slipway_job_step_seconds_sum[5m]) > 0)",
            "The share of the steps' time that each section took in the last 5 minutes",
        ),
        RecordingRule(
            "slipway:checkpoint_save_seconds:p90",
            "histogram_quantile(0.9, sum by (training, le) (rate(slipway_job_checkpoint_save_seconds_bucket[30m])))",
            "Nine of ten saves of the last half hour took no longer",
        ),
        RecordingRule(
            "slipway:checkpoint_load_seconds:p90",
            "histogram_quantile(0.9, sum by (training, le) (rate(slipway_job_checkpoint_load_seconds_bucket[30m])))",
            "Nine of ten restores of the last half hour took no longer",
        ),
        RecordingRule(
            "slipway:nodes_ready:ratio",
            'sum(slipway_nodes{state="ready"}) / (sum(slipway_nodes) > 0)',
            "The share of the fleet's nodes that take new work",
        ),
        RecordingRule(
            "slipway:tier_free:ratio",
            "slipway_tier_free_bytes / slipway_tier_size_bytes",
            "The share of each tier's file system that is free",
        ),
        RecordingRule(
            "slipway:tokens_per_second:sum",
            "sum(slipway_job_tokens_per_second)",
            "Tokens a second of all running trainings",
        ),
    ),
)
