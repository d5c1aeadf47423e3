"""Buckets: what a second of a training can be spent on. Each second between "wanted" and the end has exactly one."""

WAITING = "waiting"
"""It is wanted, and not started yet: too few nodes are ready, or nobody has looked."""
QUEUE = "queue"
"""Its job is submitted, and its processes have not begun: a queue, a scheduler, an image."""
STARTING = "starting"
"""Processes begin, import what they need, and find one another."""
STAGING = "staging"
BUILDING = "building"
RESTORING = "restoring"
COMPILING = "compiling"
"""The first step, where the layout compiles blocks."""
STEPS = "steps"
"""Computing in steps that are kept."""
DATA = "data"
"""Steps that are kept wait for their samples."""
COMMUNICATION = "communication"
"""Steps that are kept wait for other ranks, beyond what is hidden behind computing."""
VALIDATION = "validation"
CHECKPOINT = "checkpoint"
"""Steps wait for a checkpoint."""
REPEATED = "repeated"
"""Steps that an interruption took back: they were done again."""
UNDETECTED = "undetected"
"""From the last sign of progress to the moment at which somebody noticed, or the job ended."""
RESTART = "restart"
"""From there to the next process."""
AWAY = "away"
"""Nobody acted, as the control plane was away."""
ENDING = "ending"
"""The last records and copies."""
STOPPED = "stopped"
"""Nobody wanted it to run."""

STEPPING = (STEPS, DATA, COMMUNICATION)
"""What makes up a step, and is lost with it."""
PRODUCTIVE = (*STEPPING, VALIDATION, CHECKPOINT)
"""The productive time by Meta's definition: all but queue, start, and what is done again."""
START = (STARTING, STAGING, BUILDING, RESTORING, COMPILING)
"""What a new process does before its steps."""
BY_PHASE = {
    "starting": STARTING,
    "staging": STAGING,
    "building": BUILDING,
    "restoring": RESTORING,
    "compiling": COMPILING,
    "training": STEPS,
    "validating": VALIDATION,
    "committing": CHECKPOINT,
    "copying": ENDING,
    "ending": ENDING,
}
"""The bucket of each phase of `slipway.trainer.record.phases`; time in a phase of another version counts as
`STARTING`."""
TITLES = {
    STEPS: "steps",
    DATA: "data wait",
    COMMUNICATION: "communication",
    VALIDATION: "validation",
    CHECKPOINT: "checkpoint stall",
    REPEATED: "repeated steps",
    UNDETECTED: "until detected",
    RESTART: "detection to restart",
    AWAY: "control plane away",
    WAITING: "waiting for its start",
    QUEUE: "queue",
    STARTING: "starting",
    STAGING: "staging",
    BUILDING: "building",
    RESTORING: "restoring",
    COMPILING: "compiling",
    ENDING: "ending",
    STOPPED: "stopped by a person",
}
"""In words, in the order in which people read them."""
