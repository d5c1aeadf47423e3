"""The interface for running model servers: as local processes, or as objects on a cluster."""

from typing import ClassVar, Protocol

from slipway.serving.records import ServingRecords


class ServingPlace(Protocol):
    """Runs the servers that the records request."""

    precision: ClassVar[str]
    """The type of exported weights: bf16 or fp32."""

    @property
    def image(self) -> str:
        """The image of a job that loads a served model; "" if jobs have no image."""

    def ensure(self, records: ServingRecords) -> None:
        """Start the front and everything it needs, unless they run. Raises Unavailable."""
