"""Kubernetes' API: objects, the client that reads and writes them, the mirror that watches them, a cluster's settings.

The launcher and the fleet of a cluster stand on it: `slipway.resources.launchers.kubernetes`,
`slipway.resources.fleet.kubernetes`.
"""
