"""The interface of what runs the server: processes of this machine, or objects of a cluster."""

from typing import ClassVar, Protocol

from slipway.serving.records import ServingRecords


class ServingPlace(Protocol):
    """Runs what the records want."""

    precision: ClassVar[str]
    """The type of the weights of exports: bf16 or fp32."""

    @property
    def image(self) -> str:
        """The image of a job that loads a served model; empty where jobs have no image."""

    def ensure(self, records: ServingRecords) -> None:
        """Have a front, and what it needs; does nothing where all of it is there. Raises Unavailable."""
