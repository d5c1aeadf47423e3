"""The launcher of a cluster: jobs as Kubernetes objects, of one of several kinds."""
