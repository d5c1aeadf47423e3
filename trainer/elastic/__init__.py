"""What happens from a dead, slow or wrong rank to the next step: detection, the end of a generation, the next one."""
