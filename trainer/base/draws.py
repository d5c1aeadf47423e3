"""Draws for samples: random numbers that depend on a seed and on the sample's place alone.

So a mask or a crop is the same on any number of ranks, after every restart, and in a replay.
"""

import numpy as np
import numpy.typing as npt

Words64 = npt.NDArray[np.uint64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio, odd: the step of splitmix64."""


def uniforms(seed: int, indices: Words64, count: int) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1): [len(places), count], a row for each place.

    Each number is the high 53 bits of splitmix64's output at a state of its own (Steele, Lea and Flood 2014).
    """
    rows = mix(mix(np.array([seed], np.uint64) + GOLDEN) + indices * GOLDEN)
    columns = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    high: Words64 = mix(rows[:, None] + columns) >> np.uint64(11)
    return high.astype(np.float64) * 2.0**-53


def mix(values: Words64) -> Words64:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): every input bit reaches every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
