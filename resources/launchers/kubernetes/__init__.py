"""The Kubernetes launcher: jobs as Kubernetes objects of one of several kinds of workload."""
