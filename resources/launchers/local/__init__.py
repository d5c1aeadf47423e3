"""The launcher of one machine: jobs as detached processes on the nodes of the embedded fleet."""
