"""Asking: what each request of a person in the UI has beside its own fields."""

import dagster as dg
from pydantic import Field


class Asking(dg.Config):
    """Why a person asks for something."""

    why: str = Field(default="asked in the UI", description="The reason, kept on record")
