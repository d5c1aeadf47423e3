"""Seconds of a processor and memory to make the account of a training from a ledger of a million events.

``python -m benchmarks.accounts [--events 1000000]``: the first reading, which folds all of it, and one of what is new
since. No other platform keeps such an account, so that there is no peer.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from slipway.resources.trainings import accounts
from slipway.trainer.base import journal
from slipway.trainer.record import fence, files
from slipway.trainer.record.fence import Token

STEPS_IN_A_BLOCK = 10_000
NEW_EVENTS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        return print(json.dumps(_reading(options.read)), flush=True)
    with tempfile.TemporaryDirectory(prefix="accounts-") as scratch:
        folder = Path(scratch)
        assert fence.claim(folder, Token(1), nodes=("node-0",), cause="benchmark", by="benchmark")
        _write(folder, 1, options.events)
        # In processes of their own: the memory is theirs alone.
        first = _read(folder)
        _write(folder, options.events + 1, NEW_EVENTS)
        second = _read(folder)
    events = f"a ledger of {options.events:,} events"
    _print(f"{events}, the first account", "s", first["seconds"], 10.0)
    _print(f"{events}, its memory", "MiB", first["mebibytes"], 256.0)
    _print(f"{events}, the account after {NEW_EVENTS} more", "s", second["seconds"], 0.1)


def _write(folder: Path, first: int, count: int) -> None:
    """Steps of a second each, with all that a rank on a GPU tells of each."""
    begun = time.time() - 2_000_000
    with journal.Journal(folder / files.LEDGER / f"{Token(1)}.rank-0.jsonl", durable=False) as log:
        for block in range(first, first + count, STEPS_IN_A_BLOCK):
            numbers = range(block, min(block + STEPS_IN_A_BLOCK, first + count))
            log.append(*(_step(number, begun + number) for number in numbers))


def _step(number: int, at: float) -> dict[str, object]:
    times = {"loss": 2.345678, "seconds": 0.98765, "data_seconds": 0.00123, "communication_seconds": 0.0456}
    figures = {"tokens_per_second": 123456.7, "mfu": 0.412, "gradient_norm": 1.2345, "learning_rate": 0.0003}
    return {"event": "step", "t": at, "step": number, **times, **figures}


def _read(folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.accounts", "--read", str(folder)]
    measurements: dict[str, float] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return measurements


def _reading(folder: Path) -> dict[str, float]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    accounts.of(folder)
    seconds = time.process_time() - begun
    return {"seconds": seconds, "mebibytes": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}


def _print(metric: str, unit: str, value: float, aim: float) -> None:
    line = {"benchmark": "accounts", "metric": metric, "unit": unit, "better": "lower", "ours": round(value, 3)}
    print(json.dumps({**line, "peers": {}, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
