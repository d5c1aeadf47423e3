"""The Python of the deployment on Kubernetes: the chart's values as types, its rights, and the rendered objects."""
