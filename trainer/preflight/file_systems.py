"""A tier's file system: each operation that Slipway builds on, tried and judged."""

from collections.abc import Iterator
from pathlib import Path

from slipway.trainer.base import file_system
from slipway.trainer.base.file_system import Ability
from slipway.trainer.preflight.findings import Finding, Verdict, failed


def judged(folder: Path) -> Iterator[Finding]:
    """A finding for each operation, and one for whom locks hold. A folder that cannot be written is faulty."""
    try:
        results = file_system.abilities(folder)
    except OSError as error:
        yield failed("file system", f"{folder}: {error.strerror}")
        return
    kind = file_system.kind(folder)
    for ability in results:
        yield _judged(ability, f"{folder} ({kind})")
    yield Finding(name="lock scope", value=file_system.lock_scope(folder), note=f"{folder} ({kind})")


def _judged(ability: Ability, where: str) -> Finding:
    if not ability.fault:
        return Finding(name=ability.name, value="works", verdict="excellent", note=where)
    verdict: Verdict = "weak" if ability.instead else "faulty"
    note = "; ".join(filter(None, [where, ability.instead]))
    return Finding(name=ability.name, value=ability.fault, verdict=verdict, note=note)
