"""The deployment on Kubernetes: the types of the chart's values, its permissions, and the rendered objects."""
