"""The configuration of a training: its sections, how they fit together, and the profiles of hardware."""
