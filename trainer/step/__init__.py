"""One step: forward and backward passes, gradients between ranks, the optimiser."""
