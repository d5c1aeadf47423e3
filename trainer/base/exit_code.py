"""The exit codes of a rank, the same for `python -m slipway.trainer` and for a script of one's own."""

import enum


class ExitCode(enum.IntEnum):
    DONE = 0
    """The training is done, or was stopped as asked."""
    FAILED = 1
    """The training diverged, found no memory, could not write to a disk, or its node lacked something."""
    UNUSABLE = 2
    """The configuration cannot be trained."""
    SUPERSEDED = 3
    """A newer incarnation or generation has taken the training over."""
    GIVEN_UP = 4
    """Ranks of this node were killed again and again. A node that is killed itself ends with 128 + n, as a shell has
    it, and a launcher that starts it anew tells the two apart."""
