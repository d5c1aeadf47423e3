"""The same jobs and the same fleet on Kubernetes. What is common to all launchers stands in `resources/launcher`.

Pure: names, cluster, pods, placement, queues, patch, fields, workloads, status. Edges: client, launcher, fleet, cordon.
"""
