"""The API server's refusals: status, reason and message of k8s.io/apimachinery/pkg/api/errors."""

from kmock import KubernetesError

from tests.kubernetes.simulated.kinds import Object, Resource, qualified

__all__ = ["KubernetesError"]


def _about(resource: Resource, name: str) -> Object:
    about = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in about.items() if value}


def not_found(resource: Resource, name: str) -> KubernetesError:
    message = f'{qualified(resource)} "{name}" not found'
    return KubernetesError(404, "NotFound", message, _about(resource, name))


def no_such_resource() -> KubernetesError:
    """The group is known, its kind is not."""
    return KubernetesError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Resource, name: str) -> KubernetesError:
    message = f'{qualified(resource)} "{name}" already exists'
    return KubernetesError(409, "AlreadyExists", message, _about(resource, name))


def conflict(resource: Resource, name: str, why: str) -> KubernetesError:
    message = f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}'
    return KubernetesError(409, "Conflict", message, _about(resource, name))


def modified(resource: Resource, name: str) -> KubernetesError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def invalid(resource: Resource, name: str, field: str, value: object, why: str) -> KubernetesError:
    text = f'"{value}"' if isinstance(value, str) else value
    cause = {"reason": "FieldValueInvalid", "message": f"Invalid value: {text}: {why}", "field": field}
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    message = f'{kind} "{name}" is invalid: {field}: {cause["message"]}'
    details = {"name": name, "group": resource.group, "kind": resource.kind, "causes": [cause]}
    return KubernetesError(422, "Invalid", message, details)


def forbidden(resource: Resource, verb: str, user: str, namespace: str, name: str, subresource: str) -> KubernetesError:
    which = f'{qualified(resource)} "{name}"' if name else qualified(resource)
    what = f"{resource.plural}/{subresource}" if subresource else resource.plural
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    doing = f'User "{user}" cannot {verb} resource "{what}" in API group "{resource.group}" {where}'
    return KubernetesError(403, "Forbidden", f"{which} is forbidden: {doing}", _about(resource, name))


def refused(resource: Resource, name: str, why: str) -> KubernetesError:
    """A refusal by an admission plugin."""
    message = f'{qualified(resource)} "{name}" is forbidden: {why}'
    return KubernetesError(403, "Forbidden", message, _about(resource, name))


def bad_request(message: str) -> KubernetesError:
    return KubernetesError(400, "BadRequest", message, {})


def expired(message: str) -> KubernetesError:
    return KubernetesError(410, "Expired", message, {})


def internal(message: str) -> KubernetesError:
    return KubernetesError(500, "InternalError", message, {})


def unsupported_media_type(accepted: str) -> KubernetesError:
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return KubernetesError(415, "UnsupportedMediaType", message, {})


def method_not_allowed() -> KubernetesError:
    message = "the server does not allow this method on the requested resource"
    return KubernetesError(405, "MethodNotAllowed", message, {})


def as_status(error: KubernetesError) -> Object:
    """An error as the object of its answer."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "details": error.details or {},
        "code": error.status,
    }
