"""The fleet: which nodes there are, and in what state. One protocol, several implementations."""
