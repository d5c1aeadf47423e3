"""Buckets: the uses of a training's time. Each second between "wanted" and the end has exactly one."""

WAITING = "waiting"
"""The training is wanted, and not started yet: too few nodes are ready, or the control plane has not acted."""
QUEUE = "queue"
"""Its job is submitted, and its processes have not begun: a queue, a scheduler, an image."""
STARTING = "starting"
"""Processes begin, import their modules, and meet."""
STAGING = "staging"
BUILDING = "building"
RESTORING = "restoring"
COMPILING = "compiling"
"""The first step, if the layout compiles blocks."""
STEPS = "steps"
"""Computing in steps that are not repeated."""
DATA = "data"
"""Such steps wait for their samples."""
COMMUNICATION = "communication"
"""Such steps wait for other ranks, beyond the communication that overlaps with computing."""
VALIDATION = "validation"
CHECKPOINT = "checkpoint"
"""Steps wait for a checkpoint."""
REPEATED = "repeated"
"""Steps that an interruption took back: they were done again."""
UNDETECTED = "undetected"
"""From the last progress to the detection of a fault, or the end of the job."""
RESTART = "restart"
"""From there to the next process."""
AWAY = "away"
"""The control plane was away and did not act."""
ENDING = "ending"
"""The last records and copies."""
STOPPED = "stopped"
"""Nobody wanted it to run."""

STEPPING = (STEPS, DATA, COMMUNICATION)
"""The parts of a step, which are lost with it."""
PRODUCTIVE = (*STEPPING, VALIDATION, CHECKPOINT)
"""The productive time by Meta's definition: all but queue, start and repeated steps."""
START = (STARTING, STAGING, BUILDING, RESTORING, COMPILING)
"""The work of a new process before its steps."""
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
