"""MLflow: delivery of metrics and artefacts, and the model registry."""
