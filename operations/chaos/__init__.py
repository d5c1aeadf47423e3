"""Chaos: faults on purpose, drawn with a seed, and whether the platform found each with the right cause.

`schedule` says when what happens, `processes` finds whom it happens to, `faults` has each fault, `course` brings them
about one after the other, and `report` compares them with the incidents that the platform recorded.
"""
