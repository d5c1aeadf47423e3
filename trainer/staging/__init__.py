"""Snapshots on a node's NVMe: copied there, verified, leased, divided between nodes, and removed again."""
