"""The fleet of a Kubernetes cluster: the health of its nodes, and how to cordon them."""
