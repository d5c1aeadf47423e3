"""The launcher and the fleet of an embedded instance, opened without Dagster, so that the command line starts fast."""

from slipway.resources.fleet.embedded import REBOOT_SECONDS, EmbeddedFleet
from slipway.resources.fleet.health.node_health import NodeHealth
from slipway.resources.fleet.health.register import NodeRegister
from slipway.resources.fleet.health.standing import HealthRules
from slipway.resources.home import NODES, Home
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.trainer.base.paths import CODE

RULES = HealthRules(apply=True, hold_seconds=30.0)
"""When nodes are taken out of service. The hold is short, so that a person trying it out soon sees the diagnosis."""


def fleet(home: Home) -> EmbeddedFleet:
    """The nodes of a home."""
    return EmbeddedFleet(home.nodes, NODES, REBOOT_SECONDS)


def node_health(home: Home) -> NodeHealth:
    """Access to the health of these nodes."""
    return NodeHealth(NodeRegister(home.durable), RULES, fleet(home).nodes)


def launcher(home: Home) -> LocalLauncher:
    """The launcher of the jobs of a home."""
    return LocalLauncher(home.jobs, CODE, fleet(home))
