"""The fleet of a cluster: the health of its nodes, and how a person cordons one."""
