"""What belongs to the deployment on Kubernetes and needs Python: the chart's values as types, and the rendered objects."""
