"""Trainings in the control plane: their records, their facts, the decision, and the control that acts on it."""
