"""Trainings as the control plane sees them: their records, their facts, the decision, and the control that acts."""
