"""Draws for samples: numbers that a seed and a sample's place decide, and nothing else.

So a mask or a crop is the same on any number of ranks, after every restart, and in a replay.
"""

import numpy as np
import numpy.typing as npt

from trainer.order import GOLDEN, mix


def uniforms(seed: int, places: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1): [len(places), count], a row for each place.

    Each is what splitmix64 gives at its own state (Steele, Lea and Flood 2014), of which the high 53 bits are kept.
    """
    rows = mix(mix(np.array([seed], np.uint64) + GOLDEN) + places * GOLDEN)
    columns = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    high: npt.NDArray[np.uint64] = mix(rows[:, None] + columns) >> np.uint64(11)
    return high.astype(np.float64) * 2.0**-53
