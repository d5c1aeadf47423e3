"""Object names: map any name to one that Kubernetes accepts; readable, deterministic and unique.

A valid name stays as it is. An invalid name keeps its valid characters, followed by `--` and a hash of the whole name.
A name that contains `--` counts as invalid, since another name could be mapped to it.
"""

import base64
import hashlib
import re

OBJECT_LENGTH = 40
"""Less than the limit of 63, since the names of a workload's jobs, pods, services and hosts add to it."""
LABEL_LENGTH = 63
MARK = "--"
OBJECT = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
"""RFC 1035, which Services must follow: the strictest rule among the objects of a job."""
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")


def object_name(job: str) -> str:
    """The name of a job's objects, from the job's own."""
    if OBJECT.fullmatch(job) and len(job) <= OBJECT_LENGTH and MARK not in job:
        return job
    return _mapped(re.sub(r"[^a-z0-9]+", "-", job.lower()).lstrip("-0123456789"), job, OBJECT_LENGTH)


def label_value(text: str) -> str:
    """The value of a label, from any text."""
    if LABEL.fullmatch(text) and len(text) <= LABEL_LENGTH and MARK not in text:
        return text
    return _mapped(re.sub(r"[^A-Za-z0-9_.]+", "-", text).lstrip("-_."), text, LABEL_LENGTH)


def _mapped(readable: str, text: str, length: int) -> str:
    """`readable` and the hash of `text` (60 bits of SHA-256), cut to `length`."""
    mark = MARK + base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().lower()[:12]
    prefix = re.sub("-+", "-", readable)[: length - len(mark)].rstrip("-_.")
    return (prefix or "x") + mark
