"""The form of objects, checked against the schemas of two versions of Kubernetes and of the CRDs that Slipway uses.

Strict: an unknown field, which a cluster would drop in silence, is a problem, and so is a kind that has no schema here.
What the schemas cannot say (CEL rules, webhooks) is for a cluster; `tests/schemas/README.md` says what is known of it.
``python -m tests.schemas CRD.yaml...`` reduces CRDs to what is kept in `tests/schemas/`.
"""

import functools
import json
import lzma
import sys
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

VERSIONS = ("1.33", "1.37")
"""The oldest and the newest supported Kubernetes."""
FOLDER = Path(__file__).parent / "schemas"
DEFINITIONS = "https://kubernetes.io/api/_definitions.json"
METADATA = {"$ref": f"{DEFINITIONS}#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
NOT_FORM = ("default", "description", "example", "format", "title")
"""Keywords of a schema that say nothing about the form; formats of CRDs are Go's (int32), and are not checked."""

Schema = dict[str, Any]
Kind = tuple[str, str]
"""apiVersion and kind."""


def check(document: Mapping[str, Any]) -> None:
    """Raises ValueError with all problems of one object."""
    if wrong := problems(document):
        raise ValueError("\n".join(wrong))


def problems(document: Mapping[str, Any]) -> list[str]:
    """The problems that each version of Kubernetes finds in the object: version, object, field and problem."""
    return [
        f"Kubernetes {version}: {document.get('kind')} {document.get('metadata', {}).get('name')}: {problem}"
        for version in VERSIONS
        for problem in _problems(document, version)
    ]


def _problems(document: Mapping[str, Any], version: str) -> Iterator[str]:
    kind = (document.get("apiVersion", ""), document.get("kind", ""))
    validator = _validator(version, kind)
    if validator is None:
        yield f"no schema of {kind[0]} {kind[1]}"
        return
    if not {"name", "generateName"} & {*document.get("metadata", {})}:
        yield "metadata.name: is missing"
    for error in validator.iter_errors(document):
        yield f"{error.json_path.removeprefix('$.')}: {error.message[:300]}"


@functools.cache
def _validator(version: str, kind: Kind) -> Any:
    """None for a kind that neither that version of Kubernetes nor a known CRD has."""
    schema = _custom().get(kind) or _built_in(version).get(kind)
    return schema and Draft202012Validator(schema, registry=_registry(version))


@functools.cache
def _definitions(version: str) -> Schema:
    """All of Kubernetes' own schemas, with unknown fields refused."""
    package = resources.files("kubernetes_validate") / "kubernetes-json-schema"
    text = (package / f"v{version}.0-local-strict" / "_definitions.json").read_text()
    return dict(json.loads(text))


@functools.cache
def _registry(version: str) -> Any:
    return Resource.from_contents(_definitions(version)) @ Registry()


@functools.cache
def _built_in(version: str) -> dict[Kind, Schema]:
    return {
        (f"{kind['group']}/{kind['version']}".lstrip("/"), kind["kind"]): {"$ref": f"{DEFINITIONS}#/$defs/{name}"}
        for name, schema in _definitions(version)["$defs"].items()
        for kind in schema.get("x-kubernetes-group-version-kind", ())
    }


@functools.cache
def _custom() -> dict[Kind, Schema]:
    files = [json.loads(lzma.decompress(path.read_bytes())) for path in sorted(FOLDER.glob("*.json.xz"))]
    return {(entry["apiVersion"], entry["kind"]): entry["schema"] for file in files for entry in file}


def of_crd(crd: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The strict schema of each version of a kind that the CRD serves."""
    group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
    schemas = []
    for version in crd["spec"]["versions"]:
        if version["served"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = METADATA
            schema["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
            schemas.append({"apiVersion": f"{group}/{version['name']}", "kind": kind, "schema": schema})
    return schemas


def strict(schema: Mapping[str, Any]) -> Schema:
    """The JSON schema of a structural OpenAPI schema, in which what the API server would prune is a mistake."""
    form = {key: schema[key] for key in schema if key not in NOT_FORM and not key.startswith("x-kubernetes-")}
    fields = schema.get("properties", {})
    form |= {"properties": {name: strict(field) for name, field in fields.items()}} if fields else {}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            form[key] = strict(schema[key])
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if schema.get("type") == "object" and not is_open:
        form["additionalProperties"] = False
    if "required" in schema:  # the API server fills in defaults before it looks
        form["required"] = [name for name in schema["required"] if "default" not in fields.get(name, {})]
    if form.pop("nullable", False):
        form["type"] = [form["type"], "null"]
    return form


def main() -> None:
    for name in sys.argv[1:]:
        crd = yaml.load(Path(name).read_text(), Loader=yaml.CSafeLoader)
        reduced = json.dumps(of_crd(crd), separators=(",", ":"), sort_keys=True).encode()
        (FOLDER / f"{crd['metadata']['name']}.json.xz").write_bytes(lzma.compress(reduced, preset=9))


if __name__ == "__main__":
    main()
