"""Arguments of a preflight: parsing of sizes and expectations, without the imports of the measurements."""

import argparse
import re

from slipway.trainer.base.units import GIB, MIB
from slipway.trainer.preflight.disk import BLOCK

SCALES = {"": 1, "K": 2**10, "M": MIB, "G": GIB}


def size(text: str) -> int:
    """Bytes, with K, M or G for binary multiples. Raises ArgumentTypeError if it is no size, or below 8M."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    byte_count = int(match[1]) * SCALES[match[2]] if match else 0
    if byte_count < BLOCK:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected 8M or more, for example 512M or 4G")
    return byte_count


def expectation(text: str) -> tuple[str, float]:
    """The name of a line and its expected value. Raises ArgumentTypeError if it is no such pair."""
    match = re.fullmatch(r"(.+)=(\d+(?:\.\d+)?)", text)
    if match is None or not float(match[2]):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=VALUE, for example 'disk read=7'")
    return match[1], float(match[2])
