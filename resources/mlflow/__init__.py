"""MLflow: the metrics that are delivered to it, and its model registry."""
