"""Node tasks: work on one node, where its NVMe is. One protocol, two implementations."""
