"""Deployments: the embedded instance on one machine, the chart for Kubernetes, and monitoring."""
