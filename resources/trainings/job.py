"""Training job: the job of one incarnation, from the training's facts and the platform's paths.

The code of users' trainings is stored on the durable tier under the digest of its content:
``<durable>/scripts/<digest>/`` holds the files as they were when the training was proposed. Every incarnation runs this
copy on every node, even if the originals have changed. It is verified before each use. An incomplete copy is replaced
when the training is proposed again. Symbolic links are rejected, since their targets may belong to anybody.
"""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.resources import receipts
from slipway.resources.launchers.protocol import Job
from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.base import atomic, digest, lock, verify
from slipway.trainer.checkpoint.disk import encryption
from slipway.trainer.config import resolved
from slipway.trainer.node.runtime_info import REVISION

CODE_FILES = 10_000
CODE_MEGABYTES = 64
"""The maximum number of files and of megabytes that are stored as code."""


@dataclass(frozen=True)
class Paths:
    """The paths of the tiers, as a training's processes see them."""

    durable: Path
    nvme: str
    """A path with {node} in place of the node's name."""
    backup: str = ""
    """The URL of the object store, a folder, or empty for none."""
    origins: tuple[str, ...] = ()
    """Further sources of shards after the durable tier, with {node} in place of each other node's name."""


def job_name(training: str, incarnation: int) -> str:
    """The name of an incarnation's job. Every process that submits it uses the same name."""
    return f"{training}-i{incarnation}"


def job(
    facts: TrainingFacts, paths: Paths, revision: str = "", run: str = "", fabric: str = "", grace: float = 0.0
) -> Job:
    """The job of the newest incarnation; `run` is the Dagster run that submits it, or "" for a sensor.

    Its ranks get the grace period `grace` in seconds, so that they can warn if saving takes longer. `fabric` is the
    cluster's profile of network settings, used if the recipe names none. Raises ValueError if the code of a script is
    gone, or if the checkpoint key is unusable.
    """
    nodes = facts.offered
    specification = facts.specification
    run_policy = facts.run_policy
    assert facts.claim is not None, "an incarnation is claimed before its job is made"
    script = specification.script
    if facts.storage.key_file:
        encryption.read_key(Path(facts.storage.key_file))
    size = min(run_policy.max_nodes, len(nodes))
    environment = {"SLIPWAY_INCARNATION": str(facts.incarnation)}
    if revision:  # without it, the image names its own
        environment[REVISION] = revision
    if grace:
        environment["SLIPWAY_GRACE_SECONDS"] = f"{grace:g}"
    labels = {"training": facts.id, "incarnation": str(facts.incarnation)}
    if run:
        labels["run"] = run
    return Job(
        name=job_name(facts.id, facts.incarnation),
        command=tuple(script["command"]) if script else ("python", "-m", "slipway.trainer"),
        folder=str(code_folder(script["code"], paths.durable)) if script else "",
        config=with_fabric(configuration(facts, paths), fabric),
        nodes=nodes,
        size=size,
        least=min(run_policy.min_nodes, size),
        prefer=_holders(nodes, specification.snapshot, paths.durable),
        ranks_per_node=run_policy.ranks_per_node,
        environment=environment,
        labels=labels,
        kubernetes=run_policy.kubernetes,
    )


def configuration(facts: TrainingFacts, paths: Paths) -> dict[str, object]:
    """The configuration that a training's processes read: its identity config, its operation and its placement."""
    from slipway.trainer.script import FORMAT  # imports numpy, which `job_name` does not need

    specification = facts.specification
    run_policy = facts.run_policy
    placement = {
        "store": str(facts.folder),
        "durable": str(paths.durable),
        "nvme": paths.nvme,
        "backup": paths.backup,
        "origins": list(paths.origins),
        "staging": run_policy.staging,
        "nvme_gigabytes": run_policy.nvme_gigabytes,
        "init": run_policy.init,
    }
    branch: dict[str, object] = {}
    parent = specification.branch
    if parent:
        placement["parent"] = os.path.normpath(facts.folder.parent / parent.store)
        named = {"training": parent.training, "commit": parent.commit, "step": parent.step}
        branch = {"branch": {**named, "manifest": parent.manifest}}
    return {
        "format": FORMAT if specification.script else resolved.FORMAT,
        "training": facts.id,
        "snapshot": specification.snapshot,
        **specification.identity_config,
        **run_policy.operation,
        **branch,
        "placement": placement,
    }


def with_fabric(config: dict[str, object], fabric: str) -> dict[str, object]:
    """The configuration with the cluster's network profile, if its section `hardware` names no profile."""
    section = config.get("hardware")
    if not fabric or not isinstance(section, dict) or section.get("profile", "none") != "none":
        return config
    return {**config, "hardware": {**section, "profile": fabric}}


@dataclass(frozen=True)
class CodeFile:
    """A file of a training's code."""

    data: bytes
    executable: bool


def keep_code(code: Path, durable: Path) -> str:
    """Store a folder or a single file; returns the digest. An incomplete stored copy is set aside and replaced.

    Raises ValueError for no code, too much code, or a symbolic link, and OSError if it cannot be read or written.
    """
    files = _code_files(code)
    name = _code_digest(files)
    target = _code_place(durable, name)
    if not _is_whole(target):
        with lock.exclusive(target.parent):
            if not _is_whole(target):
                _put_aside(target)
                _write_code(files, target)
    return name


def code_folder(name: str, durable: Path) -> Path:
    """The verified folder of the code with this digest. Raises ValueError if it is gone or changed."""
    path = _code_place(durable, name)
    if not path.is_dir():
        raise ValueError(f"{path}: found nothing, expected the code of the training: materialise its recipe again")
    verify.check_digest("code of the digest", _code_digest(_code_files(path)), name, path)
    return path


def _holders(nodes: tuple[str, ...], snapshot: str, durable: Path) -> tuple[str, ...]:
    """The nodes that hold the snapshot's shards."""
    holders = [receipts.holders(durable, snapshot)]
    if not holders[0]:
        holders = [receipts.holders(durable, part) for part in _staged(snapshot, durable)]
    return tuple(node for node in nodes if all(node in holding_nodes for holding_nodes in holders))


def _staged(snapshot: str, durable: Path) -> list[str]:
    """The snapshots to stage for a training on this snapshot: the parts of a mixture, or the snapshot itself."""
    from slipway.trainer.data import mixtures, snapshots  # import numpy, which `job_name` does not need

    try:
        return mixtures.sources_of(snapshots.read(durable, snapshot))
    except (ValueError, OSError):
        return [snapshot]  # the trainer reports the error


def _is_whole(path: Path) -> bool:
    """Whether the code with this digest is stored completely. Raises OSError if it cannot be read."""
    try:
        return _code_digest(_code_files(path)) == path.name
    except (ValueError, FileNotFoundError):
        return False


def _put_aside(path: Path) -> None:
    """Rename a copy that does not match its digest; a person may want to inspect it."""
    if os.path.lexists(path):
        path.rename(path.with_name(f".torn-{path.name}-{time.time_ns()}"))


def _code_files(code: Path) -> dict[str, CodeFile]:
    """The files of `code` by their relative paths. Raises ValueError and OSError as `keep_code`."""
    sizes = _code_sizes(code)
    size = sum(sizes.values())
    if not sizes or len(sizes) > CODE_FILES or size > CODE_MEGABYTES * 1e6:
        sizes_text = f"{len(sizes)} files of {size / 1e6:.0f} MB"
        raise ValueError(
            f"{code}: found {sizes_text}, expected code: 1 to {CODE_FILES} files of {CODE_MEGABYTES} MB at most"
        )
    root = code if code.is_dir() else code.parent
    return {str(path.relative_to(root)): _code_file(path) for path in sizes}


def _code_sizes(code: Path) -> dict[Path, int]:
    """The size of each regular file in bytes, without `__pycache__` and names that begin with a dot."""
    sizes = dict[Path, int]()
    ahead = [code]
    while ahead:
        path = ahead.pop()
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            raise ValueError(f"{path}: found a symbolic link, expected a file or a folder: links are not followed")
        if stat.S_ISDIR(status.st_mode):
            ahead += sorted((child for child in path.iterdir() if not _is_passed_over(child.name)), reverse=True)
        elif stat.S_ISREG(status.st_mode):
            sizes[path] = status.st_size
    return sizes


def _is_passed_over(part: str) -> bool:
    return part == "__pycache__" or part.startswith(".")


def _code_file(path: Path) -> CodeFile:
    """Read a regular file. Raises OSError if it has become a symbolic link meanwhile."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        return CodeFile(file.read(), bool(os.fstat(descriptor).st_mode & stat.S_IXUSR))


def _code_digest(files: Mapping[str, CodeFile]) -> str:
    """BLAKE3 over the names, contents and permissions."""
    return digest.of_bytes(
        atomic.canonical_json({name: [digest.of_bytes(file.data), file.executable] for name, file in files.items()})
    )


def _write_code(files: Mapping[str, CodeFile], target: Path) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=target.parent))
    try:
        for name, file in files.items():
            atomic.write(temporary / name, [file.data], 0o755 if file.executable else 0o644)
        temporary.chmod(0o755)
        atomic.show(temporary, target)  # if another host has stored the same code meanwhile, its copy stays
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _code_place(durable: Path, name: str) -> Path:
    return durable / "scripts" / digest.checked(name)
