"""Export as a short job: ``python -m slipway.trainer.export REQUEST.json`` writes a checkpoint in the Hugging Face
layout.

The request has {checkpoint, manifest, target, tokenizer, precision, file_bytes, outcome}; see
`slipway.trainer.start.export`. For a model of any size, the memory is that of one tensor of the export and its parts.
"""

import sys
from pathlib import Path
from typing import Any

from slipway.trainer.base import console, parsing, regular_file
from slipway.trainer.base.processes import bind_to_launcher
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.record import job_result
from slipway.trainer.start import export


def main(arguments: list[str]) -> int:
    """Export the request's checkpoint; returns 1 or 2, with a message, if it fails."""
    bind_to_launcher()
    request: dict[str, Any] = parsing.value(regular_file.read(Path(arguments[0])))
    tokenizer = Path(request["tokenizer"]) if request["tokenizer"] else None
    source = Path(request["checkpoint"])
    target = Path(request["target"])
    numbers = request["precision"], request["file_bytes"]
    try:
        manifest = export.export(source, target, request["manifest"], tokenizer, *numbers)
        job_result.succeed(Path(request["outcome"]), {"manifest": manifest})
    except ValueError as error:
        console.warn(f"export: {error}")
        return 2
    except (DamagedCheckpoint, OSError) as error:
        console.warn(f"export: {error}")
        return 1
    return 0


if __name__ == "__main__":
    console.explain("slipway.trainer.export", "exports a checkpoint for `slipway checkpoints export`")
    sys.exit(main(sys.argv[1:]))
