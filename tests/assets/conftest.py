"""The platform of the sensors' tests, for assets that run jobs."""

from tests.sensors.conftest import platform, template, tracked

__all__ = ["platform", "template", "tracked"]
