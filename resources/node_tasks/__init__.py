"""Node tasks: work on one node, with access to its NVMe. One protocol, two implementations."""
