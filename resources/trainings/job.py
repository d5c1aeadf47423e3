"""Training job: the job of one incarnation of a training, from its facts and the paths of the platform.

The code of users' trainings is kept on the durable tier under the digest of its content:
``<durable>/scripts/<digest>/`` holds the files as they were when the training was proposed. Every incarnation runs this
copy on every node, however the originals are edited meanwhile. It is verified whenever it is used. A copy that is torn
is made again when the training is proposed again. Symbolic links are refused: what one points to may be anybody's.
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

CODE_FILES, CODE_MEGABYTES = 10_000, 64
"""The most files, and megabytes, that are kept as code."""


@dataclass(frozen=True)
class Paths:
    """The paths of the tiers, as a training's processes see them."""

    durable: Path
    nvme: str
    """With {node} for the node's name."""
    backup: str = ""
    """The object store's URL, a folder, or empty for none."""
    origins: tuple[str, ...] = ()
    """What is asked for shards after the durable tier, with {node} for each other node's name."""


def job_name(training: str, incarnation: int) -> str:
    """The name of an incarnation's job: the same for every process that submits it."""
    return f"{training}-i{incarnation}"


def job(
    facts: TrainingFacts, paths: Paths, revision: str = "", run: str = "", fabric: str = "", grace: float = 0.0
) -> Job:
    """The job of the newest incarnation; `run` is the Dagster run that submits it, empty for a sensor.

    Its ranks get the `grace` in seconds, so that they can say when their saves do not fit into it.

    `fabric` is the cluster's profile of network settings, for a training whose recipe names none.

    Raises ValueError when the code of a script is gone, and for a key of checkpoints that cannot be used.
    """
    nodes = facts.offered
    specification = facts.specification
    run_policy = facts.run_policy
    assert facts.claim is not None, "an incarnation is claimed before its job is made"
    script = specification.script
    if key_file := facts.storage.key_file:
        encryption.read_key(Path(key_file))
    size = min(run_policy.max_nodes, len(nodes))
    incarnation = str(facts.incarnation)
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
        environment={
            "SLIPWAY_INCARNATION": incarnation,
            **({REVISION: revision} if revision else {}),  # else the image says its own
            **({"SLIPWAY_GRACE_SECONDS": f"{grace:g}"} if grace else {}),
        },
        labels={"training": facts.id, "incarnation": incarnation, **({"run": run} if run else {})},
        kubernetes=run_policy.kubernetes,
    )


def configuration(facts: TrainingFacts, paths: Paths) -> dict[str, object]:
    """The configuration that a training's processes read: its numbers, how it runs, and where."""
    from slipway.trainer.script import FORMAT  # imports numpy, which is not needed where only a job's name is asked

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
    if parent := specification.branch:
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
    """A configuration with the cluster's network settings where its section `hardware` names no profile."""
    section = config.get("hardware")
    if not fabric or not isinstance(section, dict) or section.get("profile", "none") != "none":
        return config
    return {**config, "hardware": {**section, "profile": fabric}}


@dataclass(frozen=True)
class CodeFile:
    """A file of the code."""

    data: bytes
    executable: bool


def keep_code(code: Path, durable: Path) -> str:
    """Keep a folder, or a single file; returns the digest. A kept copy that is torn is put aside, and made again.

    Raises ValueError for no code, too much, and a symbolic link; OSError for what cannot be read or written.
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
    """The folder of the code of this digest, verified. Raises ValueError when it is gone or changed."""
    path = _code_place(durable, name)
    if not path.is_dir():
        raise ValueError(f"{path}: found nothing, expected the code of the training: materialise its recipe again")
    verify.check_digest("code of the digest", _code_digest(_code_files(path)), name, path)
    return path


def _holders(nodes: tuple[str, ...], snapshot: str, durable: Path) -> tuple[str, ...]:
    """Those of the nodes that hold the snapshot's shards."""
    holders = [receipts.holders(durable, snapshot)]
    if not holders[0]:
        holders = [receipts.holders(durable, part) for part in _staged(snapshot, durable)]
    return tuple(node for node in nodes if all(node in holding_nodes for holding_nodes in holders))


def _staged(snapshot: str, durable: Path) -> list[str]:
    """The snapshots that are staged ahead of a training on this one: those of a mixture, or itself."""
    from slipway.trainer.data import mixtures, snapshots  # import numpy, which is not needed where only a name is asked

    try:
        return mixtures.sources_of(snapshots.read(durable, snapshot))
    except (ValueError, OSError):
        return [snapshot]  # the trainer tells what is wrong with it


def _is_whole(path: Path) -> bool:
    """Whether the code of this digest is kept, every byte of it. Raises OSError when it cannot be read."""
    try:
        return _code_digest(_code_files(path)) == path.name
    except (ValueError, FileNotFoundError):
        return False


def _put_aside(path: Path) -> None:
    """Move what is not the code of its digest out of the way; a person may want to look into it."""
    if os.path.lexists(path):
        path.rename(path.with_name(f".torn-{path.name}-{time.time_ns()}"))


def _code_files(code: Path) -> dict[str, CodeFile]:
    """The files of `code` by their paths below it. Raises ValueError and OSError as `keep_code`."""
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
    """The bytes of each plain file, by name, without what Python compiled and names that begin with a dot."""
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
    """A plain file; one that has become a symbolic link meanwhile is not followed. Raises OSError then."""
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
        atomic.show(temporary, target)  # where another host has kept the same code meanwhile, that stays
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _code_place(durable: Path, name: str) -> Path:
    return durable / "scripts" / digest.checked(name)
