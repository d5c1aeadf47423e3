"""The platform on Kubernetes: pure parts by themselves, the rest against a simulated cluster and a real one."""
