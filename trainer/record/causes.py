"""Causes: of what class the reason is for which an incarnation ended; every record of an end has one.

A class decides what the platform does next and what a person looks at first; the sentence beside it says the rest.
"""

DONE = "done"
"""All steps are done."""
ASKED = "asked"
"""It was asked to stop: by the control plane, or by a signal that drains a node."""
DISRUPTED = "disrupted"
"""A node died, or the job lost its place."""
OUT_OF_MEMORY = "out_of_memory"
"""Memory ran out, and no smaller micro-batch is left."""
ANSWERED = "out_of_memory_answered"
"""Memory ran out, and the next start takes a smaller micro-batch."""
CONFIGURATION = "configuration"
"""The configuration cannot be trained: a new start would end in the same way."""
DIVERGED = "diverged"
"""The loss or the gradients are not finite."""
MACHINE = "machine"
"""Hardware or its driver failed, or ranks hold different copies of what should be the same."""
STORAGE = "storage"
"""A tier could not be read or written."""
HUNG = "hung"
"""No rank made progress past a deadline."""
SUPERSEDED = "superseded"
"""A newer incarnation or generation took over."""
GROWN = "grown"
"""It was started again on more nodes, as nodes came back; no fault."""
DELETED = "deleted"
"""A person deleted its job."""
PROGRAM = "program"
"""Any other error of the program."""
UNKNOWN = ""
"""It left no word, as a rank that is killed; so does a record of an earlier version."""


class Failure(Exception):
    """A rank ends for a reason of a known class; the message is one line for a person."""

    kind = PROGRAM
