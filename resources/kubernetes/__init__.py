"""Kubernetes' API: objects, the client that reads and writes them, the mirror that watches them, a cluster's settings.

The launcher and the fleet of a cluster stand on it: `resources.launchers.kubernetes`, `resources.fleet.kubernetes`.
"""
