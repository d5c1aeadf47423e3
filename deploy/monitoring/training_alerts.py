"""Alerts about trainings and their checkpoints. The limits are the defaults of the reference cluster."""

from slipway.deploy.monitoring.rule import AlertRule, RuleGroup

_INCIDENTS = "slipway_training_incidents"


def _new(selector: str) -> str:
    """Incidents that were not on record ten minutes ago."""
    of = f"{_INCIDENTS}{{{selector}}}"
    return f"{of} > ({of} offset 10m or 0 * {of})"


TRAININGS = RuleGroup(
    "slipway-trainings",
    "2s",
    (
        AlertRule(
            "TrainingStandsStill", "critical", "slipway_training_still_seconds > 300", "0s",
            "No rank of training {training} has moved for 5 minutes",
            "The job runs, and no rank reports progress. The platform ends a hung generation by itself at the deadline"
            " of the recipe; this alert says that it has not helped, or that the deadline is longer.",
            "Run `slipway show ID` and `slipway logs ID`. If a diagnosis names a node, quarantine it:"
            " `slipway nodes quarantine NODE --why ...`.",
        ),
        AlertRule(
            "RankStandsStill", "warning",
            "slipway_job_rank_still_seconds > 300"
            ' unless on (training, node, rank) slipway_job_rank_phase{phase="starting"}',
            "1m",
            "Rank {rank} of training {training} on node {node} has stood still for 5 minutes",
            "One rank is at the same place; the others usually wait for it.",
            "Look at the stacks in the incident's evidence: `slipway incidents --training ID`.",
        ),
        AlertRule(
            "TrainingWaitsForNodes", "warning", "slipway_training_waiting_seconds > 1800", "0s",
            "Training {training} has waited for its processes for half an hour",
            "It should run, and none of its ranks has begun: too few ready nodes, a queue, or an image.",
            "Run `slipway show ID` and `slipway nodes list`; on a cluster, look at the queue of its job.",
        ),
        AlertRule(
            "TrainingGivenUp", "critical",
            "slipway_training_given_up == 1 unless slipway_training_given_up offset 12h == 1",
            "0s",
            "Training {training} has failed and is not started again",
            "The budget of failures is spent, or the cause cannot be healed by a new start.",
            "Read the reason in `slipway show ID`; the class of the incident says what helps.",
        ),
        AlertRule(
            "TrainingFailsAgain", "warning", "slipway_training_failures_in_a_row >= 2", "0s",
            "Training {training} has failed twice in a row without a new checkpoint",
            "Its next failures may spend the budget, and it is given up then.",
            "Compare the incidents: one node or one step in both of them points at the cause.",
        ),
        AlertRule(
            "OutOfMemory", "warning", _new('kind=~"out_of_memory.*"'), "0s",
            "Training {training} ran out of GPU or host memory",
            "The platform takes a smaller micro-batch where one is left.",
            "Make `batch.micro` smaller, or recompute activations (`layout.activations`).",
        ),
        AlertRule(
            "Diverged", "critical", _new('kind="diverged"'), "0s",
            "The loss or the gradients of training {training} are not finite",
            "The recipe's policy skips the batch, goes back, or stops.",
            "Look at the loss before it; a smaller learning rate or more warm-up helps more often than a replay.",
        ),
        AlertRule(
            "SilentCorruption", "critical", _new('kind="corruption"'), "0s",
            "Ranks of training {training} hold different copies of what should be the same",
            "Memory or arithmetic of a node failed without a word.",
            "Run the preflight on the node that the incident names before it is released.",
        ),
        AlertRule(
            "IncidentsPileUp", "warning",
            "sum by (training) (slipway_training_incidents)"
            " > 3 + sum by (training) (slipway_training_incidents offset 1h)",
            "0s",
            "Training {training} has had more than three incidents in an hour",
            "Each of them was healed, and their number is unusual.",
            "Run `slipway incidents --since 1h --training ID` and look for a common node.",
        ),
        AlertRule(
            "SlowProgress", "warning",
            "slipway_job_tokens_per_second < 0.7 * quantile_over_time(0.5, slipway_job_tokens_per_second[1h])", "10m",
            "Training {training} is a third slower than in the hour before",
            "A slow node, a full or slow tier, or a neighbour on the network.",
            "`slipway show ID` says what bounds the steps; look for a slow rank on the dashboard Training.",
        ),
        AlertRule(
            "SlowRank", "warning",
            "slipway_job_rank_own_seconds"
            " > on (training) group_left 1.3 * quantile by (training) (0.5, slipway_job_rank_own_seconds)",
            "5m",
            "Rank {rank} of training {training} on node {node} is 30 % slower than the others",
            "All ranks wait for the slowest one in each step.",
            "Look at the node's GPU on the dashboard GPU: temperature, clocks, a neighbour's processes.",
        ),
        AlertRule(
            "CommunicationHigh", "warning", 'slipway:job_section:ratio{section="communication"} > 0.15', "15m",
            "Training {training} spends more than 15 % of its steps waiting for other ranks",
            "The network, the layout, or a slow rank.",
            "Compare with the plan (`slipway plan`); compress gradients or accumulate more samples.",
        ),
        AlertRule(
            "DataWaitHigh", "warning", 'slipway:job_section:ratio{section="data"} > 0.1', "15m",
            "Training {training} spends more than 10 % of its steps waiting for data",
            "The shards are not on the node's NVMe, or something else reads from it.",
            "Look at the disks on the dashboard Cluster, and at `loader` in the recipe.",
        ),
        AlertRule(
            "EttrLow", "warning", 'slipway_training_ettr_ratio{definition="window"} < 0.8', "30m",
            "Less than 80 % of the last hour of training {training} was steps that are kept",
            "Interruptions, saves that block, or long starts.",
            "`slipway show ID` says what the time was spent on.",
        ),
        AlertRule(
            "ValidationLossRises", "warning",
            "slipway_job_validation_loss > 1.2 * min_over_time(slipway_job_validation_loss[6h])", "15m",
            "The validation loss of training {training} is 20 % above its best of the last hours",
            "It learns its data by heart, or it has left the good region.",
            "Compare the curves in MLflow; branch from the best checkpoint: `slipway branch ID@STEP`.",
        ),
        AlertRule(
            "BatchesSkipped", "warning", "increase(slipway_job_skipped_batches_total[1h]) > 3", "0s",
            "Training {training} has left out more than three batches in an hour",
            "Batches whose loss is not finite or far above the others are left out by the recipe's policy.",
            "Look at the documents of these batches: the incidents name them.",
        ),
        AlertRule(
            "EventsLost", "warning", "increase(slipway_job_events_lost_total[10m]) > 0", "0s",
            "The ledger of training {training} has lost events",
            "The training's store could not be written for some time.",
            "Look at the durable tier: free space, and its mount on the node of rank 0.",
        ),
        AlertRule(
            "TrainingUnreadable", "critical", 'slipway_trainings{state="unreadable"} > 0', "1m",
            "The records of a training cannot be read",
            "Nothing is concluded about such a training, and nothing of it is removed.",
            "`slipway ls` names it and says which record; most often the tier's mount is the cause.",
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
            "A tier could not be written in time, or the save was too slow for its generation.",
            "`slipway checkpoints list ID` and the event commit_failed in `slipway watch ID` say why.",
        ),
        AlertRule(
            "CheckpointCopyFails", "warning", "increase(slipway_job_copy_failures_total[30m]) > 0", "0s",
            "A checkpoint of training {training} could not be copied to the tier {tier}",
            "The copy is tried again; until then the checkpoint is on fewer tiers than it should be.",
            "Look at the tier: its address, its credentials, its space.",
        ),
        AlertRule(
            "CheckpointOldOnNvme", "warning", 'slipway_training_checkpoint_age_seconds{tier="nvme"} > 1800', "0s",
            "The newest checkpoint of training {training} on NVMe is older than half an hour",
            "Twice the 15 minutes that are usual. An interruption would repeat all steps since.",
            "Look at the NVMe's free space and at `storage.nvme` in the recipe.",
        ),
        AlertRule(
            "CheckpointOldOnDurable", "critical",
            'slipway_training_checkpoint_age_seconds{tier="durable"} > 3600', "0s",
            "The newest checkpoint of training {training} on the durable tier is older than an hour",
            "Twice the 30 minutes that are usual. The loss of a node would take back all steps since.",
            "Look at the durable tier: it is away, full, or slow.",
        ),
        AlertRule(
            "CheckpointOldInBackup", "warning", 'slipway_training_checkpoint_age_seconds{tier="backup"} > 14400', "0s",
            "The newest checkpoint of training {training} in the object store is older than four hours",
            "Twice the 2 hours that are usual.",
            "Look at the object store's address and credentials: the event replication_failed says why.",
        ),
        AlertRule(
            "CheckpointSaveSlow", "warning", "slipway:checkpoint_save_seconds:p90 > 30", "10m",
            "Saves of training {training} take longer than 30 s",
            "The tier is slower than the size of the state allows for.",
            "Compare with `slipway plan`; write to NVMe first (`storage.nvme`).",
        ),
        AlertRule(
            "CheckpointLoadSlow", "warning", "slipway:checkpoint_load_seconds:p90 > 20", "0s",
            "Restores of training {training} take longer than 20 s",
            "Each restart costs this time.",
            "Keep a checkpoint on the nodes' NVMe (`storage.nvme`), or restore from neighbours.",
        ),
        AlertRule(
            "CheckpointDamaged", "critical", "slipway_training_checkpoints_damaged > 0", "0s",
            "A checkpoint of training {training} is damaged on a lasting tier",
            "Its copy is not used. Where no other copy is left, the checkpoint is set aside.",
            "`slipway checkpoints verify ID` names the file; look at the storage beneath the tier.",
        ),
    ),
)  # fmt: skip
