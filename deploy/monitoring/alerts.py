"""All alerts."""

from deploy.monitoring.hardware_alerts import HARDWARE
from deploy.monitoring.platform_alerts import FLEET, PLATFORM
from deploy.monitoring.recording import RECORDING
from deploy.monitoring.training_alerts import CHECKPOINTS, TRAININGS

GROUPS = (RECORDING, TRAININGS, CHECKPOINTS, FLEET, PLATFORM, HARDWARE)
ALERTS = tuple(alert for group in GROUPS for alert in group.alerts)
