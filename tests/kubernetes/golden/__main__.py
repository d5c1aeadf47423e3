"""Writes the golden files anew: ``python -m tests.kubernetes.golden``. What changed is for `git diff` to show."""

from tests.kubernetes.golden import FILES, text

for name in FILES:
    FILES[name].write_text(text(name))
