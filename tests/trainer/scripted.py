"""A script's training in a folder of its own, started as real processes, that can be held in a step."""

import subprocess
from pathlib import Path
from typing import Any

from slipway.trainer.base import atomic
from slipway.trainer.record import fence
from slipway.trainer.script import FORMAT
from tests.trainer.conftest import EVERY, STEPS, Ended, Training, line_with, wait


class Scripted(Training):
    """`tests.trainer.scripts.adds`, or another one, with 20 steps and a checkpoint every 5."""

    program = "tests.trainer.scripts.adds"

    def configure(self, **parameters: Any) -> None:
        """Write its configuration; the parameter `hold` names the file that holds it."""
        folders = {"store": str(self.store), "durable": str(self.durable), "nvme": str(self.folder / "nvme-{node}")}
        document = {
            "format": FORMAT,
            "training": "tiny",
            "snapshot": self.snapshot.sha256,
            "script": {"command": ["python", "-m", self.program], "code": "0" * 64},
            "parameters": {"steps": STEPS, "every": EVERY, "hold": str(self.hold), **parameters},
            "placement": folders,
        }
        self.config.write_bytes(atomic.readable_json(document))

    @property
    def hold(self) -> Path:
        return self.folder / "hold"

    def start(self, ranks: int = 1, freeze: str = "", **environment: str) -> subprocess.Popen[str]:
        assert not freeze, "a script is held by its own step"
        agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", "-m"]
        module = [*agent, self.program] if ranks > 1 else [self.program]
        environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **environment}
        return self.spawn(*module, str(self.config), **environment)

    def start_and_hold(self, step: int, ranks: int = 1, **environment: str) -> subprocess.Popen[str]:
        """Start it; it waits in this step, before it reports it, until `release`."""
        self.hold.touch()
        self.configure(hold_at=step)
        process = self.start(ranks, **environment)
        for _ in range(ranks):
            line_with(process, f"holding at {step}")
        return process

    def release(self, process: subprocess.Popen[str]) -> Ended:
        """Let a held process go on; how it ends."""
        self.hold.unlink()
        return wait(process)

    def killed(self, step: int) -> "Scripted":
        """Start it and end it by SIGKILL in this step."""
        process = self.start_and_hold(step)
        process.kill()
        wait(process)
        self.hold.unlink()
        self.configure()
        return self

    def claim(self, incarnation: int) -> None:
        """Claim an incarnation for somebody else, as the control plane does."""
        assert fence.claim(self.store, fence.Token(incarnation), nodes=("node-1",), cause="a test", by="a test")

    def result(self) -> bytes:
        return self.checkpoint_file("total.json").read_bytes()
