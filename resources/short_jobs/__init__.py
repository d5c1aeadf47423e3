"""Short jobs: work after a training, such as evaluations, that needs more than one process of the control plane."""
