"""A Kubernetes cluster in one process, as far as its clients can tell: API server, controllers, scheduler, kubelets.

`cluster.Cluster` is the whole of it. Clients reach it over HTTP with a kubeconfig; pods run as local processes.
What is imitated, and after which source, stands in each file.
"""
