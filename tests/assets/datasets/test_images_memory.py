"""Memory of a build of images: bounded, whatever the source's size."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

MEASURE = """
import sys
from pathlib import Path
from slipway.assets.datasets.building import workers
from tests.assets.datasets.digits import build, recipe_for

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024

workers.available = lambda: 1  # all in this process, which is measured
size = {"height": 64, "width": 64, "channels": 3, "shard_megabytes": 4.0}
before = peak()
made = build(recipe_for(Path(sys.argv[1]), images=size), Path(sys.argv[2]))
print(sum(shard.bytes for shard in made.shards()), peak() - before)
"""
BOUND_MIB = 350
"""In addition to the interpreter; half of it is duckdb's buffers."""


def write_large(path: Path, mebibytes: int) -> None:
    """Random images of 12 KiB each, as lists of pixels."""
    random, size = np.random.default_rng(0), 64 * 64 * 3
    schema = pa.schema([("image", pa.list_(pa.uint8(), size)), ("label", pa.int64())])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for _ in range(mebibytes * 2**20 // (1000 * size) + 1):
            pixels = pa.array(random.integers(0, 256, 1000 * size, np.uint8))
            images = pa.FixedSizeListArray.from_arrays(pixels, size)
            writer.write_table(pa.table([images, pa.array(np.arange(1000) % 10)], schema=schema))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_source_several_times_larger_than_the_bound_is_built_in_bounded_memory(tmp_path):
    (tmp_path / "corpus").mkdir()
    write_large(tmp_path / "corpus" / "large.parquet", 4 * BOUND_MIB)
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "corpus"), str(tmp_path / "durable")]
    measured = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True)
    size, mebibytes = measured.stdout.split()
    assert int(size) > 3 * BOUND_MIB * 2**20
    assert float(mebibytes) < BOUND_MIB
