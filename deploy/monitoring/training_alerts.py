"""Alerts about trainings and their checkpoints. The limits are set for the reference cluster."""

from slipway.deploy.monitoring.rule import AlertRule, RuleGroup

_INCIDENTS = "slipway_training_incidents"


def _new(selector: str) -> str:
    """An expression for incidents that are newer than ten minutes."""
    of = f"{_INCIDENTS}{{{selector}}}"
    return f"{of} > ({of} offset 10m or 0 * {of})"


TRAININGS = RuleGroup(
    "slipway-trainings",
    "2s",
    (
        AlertRule(
            "TrainingStandsStill", "critical", "slipway_training_still_seconds > 300", "0s",
            "No rank of training {training} has moved for 5 minutes",
            "The job runs, but no rank reports progress. The platform restarts a hung generation at the deadline"
            " of the recipe. This alert means that the restart did not help, or that the deadline is longer.",
            "Run `slipway show ID` and `slipway logs ID`. If a diagnosis names a node, quarantine it:"
            " `slipway nodes quarantine NODE --why ...`.",
        ),
        AlertRule(
            "RankStandsStill", "warning",
            "slipway_job_rank_still_seconds > 300"
            ' unless on (training, node, rank) slipway_job_rank_phase{phase="starting"}',
            "1m",
            "Rank {rank} of training {training} on node {node} has stood still for 5 minutes",
            "One rank makes no progress, and the others usually wait for it.",
            "Look at the stacks in the incident's evidence: `slipway incidents --training ID`.",
        ),
        AlertRule(
            "TrainingWaitsForNodes", "warning", "slipway_training_waiting_seconds > 1800", "0s",
            "Training {training} has waited for its processes for half an hour",
            "The training should run, but none of its ranks has begun. Too few nodes are ready, its job is queued,"
            " or the image cannot be pulled.",
            "Run `slipway show ID` and `slipway nodes list`; on a cluster, look at the queue of its job.",
        ),
        AlertRule(
            "TrainingGivenUp", "critical",
            "slipway_training_given_up == 1 unless slipway_training_given_up offset 12h == 1",
            "0s",
            "Training {training} has failed and is not started again",
            "The limit of failures is reached, or a restart cannot remove the cause.",
            "Read the reason in `slipway show ID`, and in this runbook the section of the incident's class.",
        ),
        AlertRule(
            "TrainingFailsAgain", "warning", "slipway_training_failures_in_a_row >= 2", "0s",
            "Training {training} has failed twice in a row without a new checkpoint",
            "After a few more failures in a row, the platform no longer restarts it.",
            "Compare the two incidents: a common node or a common step points to the cause.",
        ),
        AlertRule(
            "OutOfMemory", "warning", _new('kind=~"out_of_memory.*"'), "0s",
            "Training {training} ran out of GPU or host memory",
            "The platform restarts it with a smaller micro-batch, if possible.",
            "Make `batch.micro` smaller, or recompute activations (`layout.activations`).",
        ),
        AlertRule(
            "Diverged", "critical", _new('kind="diverged"'), "0s",
            "The loss or the gradients of training {training} are not finite",
            "By the recipe's policy, the training skips the batch, goes back to a checkpoint, or stops.",
            "Look at the loss before that step. A lower learning rate or more warm-up helps more often than a replay.",
        ),
        AlertRule(
            "SilentCorruption", "critical", _new('kind="corruption"'), "0s",
            "Ranks of training {training} have different copies of the same parameters",
            "The memory or the arithmetic of a node failed without an error.",
            "Run the preflight on the node that the incident names, before you release the node.",
        ),
        AlertRule(
            "IncidentsPileUp", "warning",
            "sum by (training) (slipway_training_incidents)"
            " > 3 + sum by (training) (slipway_training_incidents offset 1h)",
            "0s",
            "Training {training} has had more than three incidents in an hour",
            "The platform recovered from each of them, but their number is unusual.",
            "Run `slipway incidents --since 1h --training ID` and look for a common node.",
        ),
        AlertRule(
            "SlowProgress", "warning",
            "slipway_job_tokens_per_second < 0.7 * quantile_over_time(0.5, slipway_job_tokens_per_second[1h])", "10m",
            "Training {training} is a third slower than in the hour before",
            "The cause may be a slow node, a full or slow tier, or other traffic on the network.",
            "Read the speed limit in `slipway show ID`, and look for a slow rank on the dashboard Training.",
        ),
        AlertRule(
            "SlowRank", "warning",
            "slipway_job_rank_own_seconds"
            " > on (training) group_left 1.3 * quantile by (training) (0.5, slipway_job_rank_own_seconds)",
            "5m",
            "Rank {rank} of training {training} on node {node} is 30 % slower than the others",
            "All ranks wait for the slowest one in each step.",
            "Look at the node's GPU on the dashboard GPU: the temperature, the clocks, and other processes.",
        ),
        AlertRule(
            "CommunicationHigh", "warning", 'slipway:job_section:ratio{section="communication"} > 0.15', "15m",
            "Training {training} spends more than 15 % of its steps waiting for other ranks",
            "The cause may be the network, the layout, or a slow rank.",
            "Compare with the plan (`slipway plan`); compress gradients or accumulate more samples.",
        ),
        AlertRule(
            "DataWaitHigh", "warning", 'slipway:job_section:ratio{section="data"} > 0.1', "15m",
            "Training {training} spends more than 10 % of its steps waiting for data",
            "The shards are not on the node's NVMe, or another program reads from that disk.",
            "Look at the disks on the dashboard Cluster, and at `loader` in the recipe.",
        ),
        AlertRule(
            "EttrLow", "warning", 'slipway_training_ettr_ratio{definition="window"} < 0.8', "30m",
            "Training {training} spent less than 80 % of the last hour on steps that count",
            "The cause may be interruptions, blocking saves, or long starts.",
            "`slipway show ID` shows how the time was spent.",
        ),
        AlertRule(
            "ValidationLossRises", "warning",
            "slipway_job_validation_loss > 1.2 * min_over_time(slipway_job_validation_loss[6h])", "15m",
            "The validation loss of training {training} is 20 % above its best of the last hours",
            "The model overfits its data, or the training has become unstable.",
            "Compare the curves in MLflow; branch from the best checkpoint: `slipway branch ID@STEP`.",
        ),
        AlertRule(
            "BatchesSkipped", "warning", "increase(slipway_job_skipped_batches_total[1h]) > 3", "0s",
            "Training {training} has skipped more than three batches in an hour",
            "The recipe's policy skips batches with a loss that is not finite or far above the usual loss.",
            "Look at the documents of these batches, which the incidents name.",
        ),
        AlertRule(
            "EventsLost", "warning", "increase(slipway_job_events_lost_total[10m]) > 0", "0s",
            "The ledger of training {training} has lost events",
            "The training could not write its records for some time.",
            "Look at the durable tier: free space, and its mount on the node of rank 0.",
        ),
        AlertRule(
            "TrainingUnreadable", "critical", 'slipway_trainings{state="unreadable"} > 0', "1m",
            "The records of a training cannot be read",
            "The platform decides nothing about this training, and removes nothing of it.",
            "`slipway ls` names the training and the record. The usual cause is the tier's mount.",
        ),
    ),
)  # fmt: skip
CHECKPOINTS = RuleGroup(
    "slipway-checkpoints",
    "5s",
    (
        AlertRule(
            "CheckpointFails", "critical", "increase(slipway_job_checkpoint_failures_total[15m]) > 0", "0s",
            "A save of training {training} made no checkpoint",
            "A tier could not be written in time, or the generation ended before the save did.",
            "`slipway checkpoints list ID` and the event commit_failed in `slipway watch ID` say why.",
        ),
        AlertRule(
            "CheckpointCopyFails", "warning", "increase(slipway_job_copy_failures_total[30m]) > 0", "0s",
            "A checkpoint of training {training} could not be copied to the tier {tier}",
            "The platform tries the copy again. Until then, the checkpoint is on fewer tiers than configured.",
            "Look at the tier's address, credentials and free space.",
        ),
        AlertRule(
            "CheckpointOldOnNvme", "warning", 'slipway_training_checkpoint_age_seconds{tier="nvme"} > 1800', "0s",
            "The newest checkpoint of training {training} on NVMe is older than half an hour",
            "The usual age is at most 15 minutes. After an interruption, the training repeats all later steps.",
            "Look at the NVMe's free space and at `storage.nvme` in the recipe.",
        ),
        AlertRule(
            "CheckpointOldOnDurable", "critical",
            'slipway_training_checkpoint_age_seconds{tier="durable"} > 3600', "0s",
            "The newest checkpoint of training {training} on the durable tier is older than an hour",
            "The usual age is at most 30 minutes. If a node is lost, the training repeats all later steps.",
            "Look at the durable tier, which may be unreachable, full, or slow.",
        ),
        AlertRule(
            "CheckpointOldInBackup", "warning", 'slipway_training_checkpoint_age_seconds{tier="backup"} > 14400', "0s",
            "The newest checkpoint of training {training} in the object store is older than four hours",
            "The usual age is at most 2 hours.",
            "Read the reason in the event replication_failed, and look at the object store's address and credentials.",
        ),
        AlertRule(
            "CheckpointSaveSlow", "warning", "slipway:checkpoint_save_seconds:p90 > 30", "10m",
            "Saves of training {training} take longer than 30 s",
            "The tier is too slow for the size of the training's state.",
            "Compare with `slipway plan`; write to NVMe first (`storage.nvme`).",
        ),
        AlertRule(
            "CheckpointLoadSlow", "warning", "slipway:checkpoint_load_seconds:p90 > 20", "0s",
            "Restores of training {training} take longer than 20 s",
            "Each restart takes this time.",
            "Keep a checkpoint on the nodes' NVMe (`storage.nvme`), or restore from neighbours.",
        ),
        AlertRule(
            "CheckpointDamaged", "critical", "slipway_training_checkpoints_damaged > 0", "0s",
            "A checkpoint of training {training} is damaged on a lasting tier",
            "The platform does not use this copy. If no other copy exists, it sets the checkpoint aside.",
            "`slipway checkpoints verify ID` names the damaged file. Look at the storage of that tier.",
        ),
    ),
)  # fmt: skip
