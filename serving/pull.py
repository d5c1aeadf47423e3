"""Pulls a verified copy of an exported model to the node's own disk, before a pod's server reads it.

``python -m slipway.serving.pull --from FOLDER_OR_URL --folder PATH --manifest SHA256 --to FOLDER`` is the init
container of the vLLM pods. It hashes every byte during the copy. The copy appears complete or not at all, and an
existing complete copy is reused.
"""

import argparse
import sys
from pathlib import Path

from slipway.trainer.base import console
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.disk.verification import read_manifest, verify_file
from slipway.trainer.checkpoint.tiers import copying
from slipway.trainer.checkpoint.tiers.tier import TierUnavailable


def pull(source: str, folder: str, manifest: str, target: Path) -> bool:
    """Copy the export `folder` of the tier at `source` to the new folder `target`; False if it exists already.

    Raises DamagedCheckpoint, TierUnavailable, OSError, and ValueError for a URL other than s3://.
    """
    if target.exists():
        for name, expected in read_manifest(target, manifest).files.items():
            verify_file(target / name, expected)
        return False
    copying.fetch(copying.tier_at(source), folder, manifest, target)
    return True


def main(arguments: list[str]) -> int:
    """Pull the export that the arguments name; returns 1, with a message, if that fails."""
    parser = argparse.ArgumentParser(prog="python -m slipway.serving.pull")
    parser.add_argument("--from", dest="source", required=True, help="folder or s3://bucket/prefix of the durable tier")
    parser.add_argument("--folder", required=True, help="the folder of the export, relative to --from")
    parser.add_argument("--manifest", required=True, help="SHA-256 of the export's manifest")
    parser.add_argument("--to", type=Path, required=True, help="the folder to make")
    options = parser.parse_args(arguments)
    try:
        pull(options.source, options.folder, options.manifest, options.to)
    except (DamagedCheckpoint, TierUnavailable, ValueError, OSError) as error:
        print(f"pull: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    console.explain("slipway.serving.pull", "copies an exported model to a node and verifies it")
    sys.exit(main(sys.argv[1:]))
