"""Node tasks: things that are done on one node, where its NVMe is. One protocol, several implementations."""
