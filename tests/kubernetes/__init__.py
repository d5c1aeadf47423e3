"""The same platform on Kubernetes: what is pure on its own, the rest against a simulated cluster and a real one."""
