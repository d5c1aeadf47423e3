"""Short jobs: what comes after a training and needs more than one process of the control plane."""
