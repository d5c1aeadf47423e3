"""The pure part of the gate: comparing two models on the same examples, and the checks of a policy."""
