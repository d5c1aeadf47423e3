"""The compute of one machine: a few embedded nodes, each with an NVMe folder of its own."""

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from slipway.resources.compute.protocol import Compute
from slipway.resources.embedded import RULES
from slipway.resources.fleet.embedded import REBOOT_SECONDS, EmbeddedFleet
from slipway.resources.fleet.health.standing import HealthRules
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.node_tasks.in_process import InProcess
from slipway.resources.serving.local import LocalServing
from slipway.resources.tiers import Tiers
from slipway.trainer.base import codec
from slipway.trainer.base.paths import CODE


class EmbeddedCompute(Compute):
    """This machine as a small cluster."""

    poll_seconds: ClassVar[float] = 0.5
    sees_nodes: ClassVar[bool] = True
    jobs: str = Field(description="Folder of the job objects")
    nodes: str = Field(description="Folder of the nodes")
    names: list[str] = Field(description="Names of the nodes")
    reboot_seconds: float = Field(
        default=REBOOT_SECONDS, description="Seconds for which a killed node stays away, as if it rebooted"
    )

    quarantine: dict[str, Any] = Field(default={}, description="Changes to the default rules of node health")

    @property
    def health_rules(self) -> HealthRules:
        return codec.build(HealthRules, {**vars(RULES), **self.quarantine})

    def launcher(self) -> LocalLauncher:
        return LocalLauncher(Path(self.jobs), CODE, fleet=self.fleet())

    def fleet(self) -> EmbeddedFleet:
        return EmbeddedFleet(Path(self.nodes), tuple(self.names), self.reboot_seconds)

    def node_tasks(self, tiers: Tiers) -> InProcess:
        return InProcess()

    def serving(self, tiers: Tiers) -> LocalServing:
        return LocalServing(CODE)
