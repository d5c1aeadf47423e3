"""The fleet: the nodes and their state. One protocol, two implementations."""
