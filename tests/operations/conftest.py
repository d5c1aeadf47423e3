"""The platform of the sensors' tests, for the operations too."""

from tests.sensors.conftest import platform, template, tracked

__all__ = ["platform", "template", "tracked"]
