"""The launcher and the fleet of an embedded instance, opened without Dagster: what a command line asks all day."""

from slipway.resources.fleet.embedded import REBOOT_SECONDS, EmbeddedFleet
from slipway.resources.fleet.health.door import NodeHealth
from slipway.resources.fleet.health.register import NodeRegister
from slipway.resources.fleet.health.standing import HealthRules
from slipway.resources.home import NODES, Home
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.trainer.base.paths import CODE

RULES = HealthRules(apply=True, hold_seconds=30.0)
"""When its nodes are taken out of service; a person who tries it out need not wait long for the diagnosis."""


def fleet(home: Home) -> EmbeddedFleet:
    """The nodes of a home."""
    return EmbeddedFleet(home.nodes, NODES, REBOOT_SECONDS)


def node_health(home: Home) -> NodeHealth:
    """The one door to the standings of these nodes."""
    return NodeHealth(NodeRegister(home.durable), RULES, fleet(home).nodes)


def launcher(home: Home) -> LocalLauncher:
    """What runs the jobs of a home."""
    return LocalLauncher(home.jobs, CODE, fleet(home))
