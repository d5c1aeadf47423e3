"""The deployment on Kubernetes, as far as it needs Python: the chart's values as types, and the rendered objects."""
