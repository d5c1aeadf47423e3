"""What a rank imports: nothing that its configuration does not use."""

import os
import subprocess
import sys

from tests.trainer.conftest import CODE

UNUSED = {
    "torch._dynamo": "the compiler, without layout.compile",
    "torch.distributed.tensor": "divided tensors, on one rank",
    "torch.distributed.fsdp": "sharded weights, on one rank",
    "torch.distributed.pipelining": "pipelines, on one rank",
    "torch.distributed.checkpoint": "the planner of checkpoints, before the first one",
    "sympy": "the compiler's algebra",
    "s3fs": "an object store, with folders alone",
    "dagster": "the control plane",
}


def test_a_rank_that_divides_and_compiles_nothing_imports_nothing_for_it() -> None:
    """A second and a half of CPU for each rank, at every start."""
    command = [sys.executable, "-m", "tests.trainer.one_step"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(CODE)}, capture_output=True, text=True, check=True
    )
    imported = set(done.stdout.split())
    assert "torch.optim" in imported
    assert {name: why for name, why in UNUSED.items() if name in imported} == {}
