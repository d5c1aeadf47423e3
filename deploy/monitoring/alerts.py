"""All alerts."""

from slipway.deploy.monitoring.hardware_alerts import HARDWARE
from slipway.deploy.monitoring.platform_alerts import FLEET, PLATFORM
from slipway.deploy.monitoring.recording import RECORDING
from slipway.deploy.monitoring.training_alerts import CHECKPOINTS, TRAININGS

GROUPS = (RECORDING, TRAININGS, CHECKPOINTS, FLEET, PLATFORM, HARDWARE)
ALERTS = tuple(alert for group in GROUPS for alert in group.alerts)
