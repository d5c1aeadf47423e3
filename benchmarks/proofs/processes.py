"""Processes: a rank's device, its start, its connections and its memory. Functions are parts of `gpu_proof`."""

import contextlib
import ctypes
import importlib
import mmap
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from benchmarks.proofs.scene import NEEDS_CUDA, Figures, Scene, Unprovable
from slipway.trainer.config.hardware import card
from slipway.trainer.elastic.generations import DUMP
from slipway.trainer.elastic.process_groups import _connect, _pci_address
from slipway.trainer.metrics.usage import Usage
from slipway.trainer.node import runtime_info as surroundings

LIBRARIES = ("libibverbs.so.1", "libmlx5.so.1", "librdmacm.so.1", "libcuda.so.1")
FORKS = 2
SECONDS_AFTER_ABORT = 65
"""Longer than the minute after which torch's watchdog ends a process whose groups were aborted under it."""
HEARTBEAT_SECONDS, ALIVE_SECONDS = 5, 14
HUGE_PAGES = 23
"""MADV_POPULATE_WRITE of madvise(2): all pages are there before they are registered."""


def environment(scene: Scene) -> Figures:
    """What is there, and what the trainer reads of the device."""
    yield {"torch": str(torch.__version__), "python": sys.version.split()[0], "of process": surroundings.of_process()}
    opened = dict[str, bool]()
    for name in LIBRARIES:
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            opened[name] = True
    yield {"libraries": [name for name in LIBRARIES if name in opened]}
    yield {"usage": Usage(scene.device).read(), "pci": _pci_address(scene.device)}
    if not scene.is_gpu:
        yield {"card": NEEDS_CUDA, "nvml": NEEDS_CUDA}
        return
    name = torch.cuda.get_device_name(scene.device)
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,power.limit", "--format=csv,noheader"]
    output = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    yield {"card": name, "has a sheet": card(name) is not None, "nvml": output}


def fork(scene: Scene) -> Figures:
    """As the supervisor does: all imports, the question whether there is a GPU, then forks that use it and compile."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    from slipway.trainer import preimport

    for module in {
        *preimport.ALWAYS,
        *preimport.TOGETHER,
        *preimport.DIVIDED,
        *preimport.COMPILED,
        *preimport.PIPELINED,
    }:
        importlib.import_module(module)
    if scene.is_gpu:
        started: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        assert torch.cuda.is_available() and not started
    yield {"tasks in the parent": len(list(Path("/proc/self/task").iterdir()))}
    scene.compile_quickly()
    for number in range(FORKS):
        begun = time.perf_counter()
        child = os.fork()
        if child == 0:
            _compute_and_exit(scene)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code == 0, f"fork {number} ended with {code}"
        yield {f"fork {number} s": time.perf_counter() - begun}


def _compute_and_exit(scene: Scene) -> None:
    try:
        square = torch.randn(64, 64, device=scene.device)
        work: Callable[[torch.Tensor], torch.Tensor] = torch.compile(lambda x: (x @ x).relu() + 1)
        os._exit(0 if work(square).isfinite().all() else 3)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def connection(scene: Scene) -> Figures:
    """One rank, but all of the life of its groups: connect, a mesh, an abort from another thread, and again; and alive
    a minute later. On a CPU gloo, whose groups are taken away in the same manner, stands for NCCL."""
    variable = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    yield {variable: os.environ.get(variable, "unset")}
    if scene.is_gpu:
        torch.cuda.set_device(scene.device)
    for turn in range(2):
        yield from _one_generation(scene, turn)
    if not scene.is_gpu:
        yield {"alive a minute after an abort": NEEDS_CUDA}
        return
    time.sleep(SECONDS_AFTER_ABORT)
    scene.wait()
    yield {"alive a minute after an abort": True}


def _one_generation(scene: Scene, turn: int) -> Figures:
    from torch.distributed.device_mesh import init_device_mesh

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    rendezvous = {"store": PrefixStore(f"again/{turn}", store), "rank": 0, "world_size": 1}
    begun = time.perf_counter()
    beside = _connect(scene.device, 60, rendezvous)
    yield {f"connect {turn} s": time.perf_counter() - begun}
    numbers = torch.ones(1 << 20, device=scene.device)
    dist.all_reduce(numbers)
    dist.all_gather_object([None], {"a": 1}, group=beside)
    init_device_mesh(scene.device.type, (1, 1, 1, 1), mesh_dim_names=("pipeline", "replicas", "shards", "tensor"))
    work = [dist.all_reduce(numbers, async_op=True) for _ in range(50)]
    yield {f"abort {turn} s": _abort()}
    del work
    scene.wait()
    try:
        dist.all_reduce(numbers)
    except Exception as error:
        yield {"an exchange after the abort": f"{type(error).__name__}: {str(error)[:60]}"}


def _abort() -> float:
    """Seconds until another thread has ended all groups. Raises AssertionError when it does not come back."""
    known: Any = dist.distributed_c10d
    begun = time.perf_counter()
    thread = threading.Thread(target=known._abort_process_group, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "the abort hangs"
    return time.perf_counter() - begun


STALE = f"""
import sys, time, torch, torch.distributed as dist
job = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
job.set("{DUMP}", bytes(4))
if sys.argv[1] == "removed":
    job.delete_key("{DUMP}")
place = dict(store=dist.PrefixStore("generation/1/ranks", job), rank=0, world_size=1)
dist.init_process_group("nccl", device_id=torch.device("cuda", 0), **place)
dist.all_reduce(torch.ones(1, device="cuda"))
time.sleep({ALIVE_SECONDS})
print("alive")
"""


def stale(scene: Scene) -> Figures:
    """A job's store with the word to dump of an earlier generation, and one from which it was removed: who joins is
    ended by torch's own monitor there, and lives here."""
    if not scene.is_gpu:
        raise Unprovable("needs CUDA: gloo has no such monitor")
    for name, survives in (("left", None), ("removed", True)):
        beat = str(HEARTBEAT_SECONDS)
        own = {
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": beat,
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        }
        program = [sys.executable, "-c", STALE, name]
        done = subprocess.run(program, env={**os.environ, **own}, capture_output=True, text=True, timeout=40)
        alive = "alive" in done.stdout
        yield {f"the word is {name}": {"code": done.returncode, "alive": alive}}
        assert survives is None or alive, done.stderr[-600:]


def copies(scene: Scene) -> Figures:
    """Out of the device into shared memory that outlives the rank, while steps run: rate, stall, equality of bytes."""
    size = scene.size(8 << 30, 8 << 20)
    descriptor = os.memfd_create("copies")
    os.ftruncate(descriptor, size)
    memory = torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)
    ctypes.CDLL(None).madvise(ctypes.c_void_p(memory.data_ptr()), ctypes.c_size_t(size), HUGE_PAGES)
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=scene.device)
    part = size // 4
    begun = time.perf_counter()
    memory[:part].copy_(source[:part])
    yield {"pageable GB/s": part / 1e9 / (time.perf_counter() - begun)}
    if scene.is_gpu:
        yield from _registered(scene, memory)
        yield {"registered GB/s": size / 1e9 / _copied_beside(source, memory)}
    else:
        memory.copy_(source)
        yield {"registered memory": NEEDS_CUDA}
    end = min(1 << 20, part)
    assert torch.equal(memory[:end], source[:end].cpu()) and torch.equal(memory[-end:], source[-end:].cpu())
    yield {"bytes": "equal"}


def _registered(scene: Scene, memory: torch.Tensor) -> Figures:
    """Register the memory in a thread, and see for how long kernels beside it wait."""
    square, codes = torch.randn(4096, 4096, device=scene.device), list[int]()
    alone = scene.milliseconds(lambda: square @ square, 20)
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    register = lambda: codes.append(int(runtime.cudaHostRegister(memory.data_ptr(), memory.numel(), 0)))  # noqa: E731
    thread = threading.Thread(target=register)
    begun = time.perf_counter()
    thread.start()
    beside = list[float]()
    while thread.is_alive():
        beside.append(scene.milliseconds(lambda: square @ square, 5, 0))
    yield {"register s": time.perf_counter() - begun, "code": codes}
    yield {"product ms": alone, "worst product beside ms": max(beside, default=0.0)}


def _copied_beside(source: torch.Tensor, memory: torch.Tensor) -> float:
    """Seconds of a copy on a stream of its own."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    begun = time.perf_counter()
    with torch.cuda.stream(stream):
        memory.copy_(source, non_blocking=True)
    stream.synchronize()
    return time.perf_counter() - begun
