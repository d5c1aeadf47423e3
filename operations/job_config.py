"""The configuration of a job that a person starts in the UI: what each has beside its own fields."""

import dagster as dg
from pydantic import Field


class ReasonConfig(dg.Config):
    """Why a person asks for something."""

    why: str = Field(default="asked in the UI", description="The reason, kept on record")


def about(context: dg.OpExecutionContext, what: str) -> str:
    """The partition that a person chose; `what` it is, such as "training". Raises ValueError where none was."""
    if not context.has_partition_key:
        raise ValueError(f"partition: found none, expected a {what}: choose one in the field above the configuration")
    return context.partition_key
