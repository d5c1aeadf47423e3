"""The Kubernetes API: objects, the client, a mirror that watches objects, and the settings of a cluster.

The launcher and the fleet of a cluster use it: `slipway.resources.launchers.kubernetes`,
`slipway.resources.fleet.kubernetes`.
"""
