"""Mutations: only people who may change things can send them, and only in a form that other sites cannot send.

Dagster checks permissions in each mutation, after it has processed the arguments, or not at all. This module checks
once before any mutation, so that a mutation of a later version cannot bypass it. Requests that a browser sends to
another site without a preflight request (an image, a link, a form) are never mutations, since those must be POST
requests with JSON (https://graphql.github.io/graphql-over-http/draft/#sec-GET).
"""

from collections.abc import Iterator

from graphql import (
    FieldNode,
    GraphQLError,
    OperationDefinitionNode,
    OperationType,
    SelectionNode,
    parse,
    value_from_ast_untyped,
)

OWN = frozenset({"logTelemetry", "setNuxSeen"})
"""The mutations that the UI sends for everybody. They only change what the UI remembers about its reader."""
TYPES = ("application/json", "application/graphql")
"""Content types that a browser sends to another site only after a preflight request."""


def changes(query: str) -> list[str]:
    """The fields of all mutations in a document; empty if it only reads.

    All its operations count, even if only one is requested. Raises GraphQLError if it cannot be parsed; such a document
    must be rejected, since Dagster's parser may accept it (the depth limit depends on the call stack).
    """
    if "mutation" not in query:  # every mutation contains this word, and most documents need no parsing
        return []
    mutations = (
        operation
        for operation in parse(query, no_location=True).definitions
        if isinstance(operation, OperationDefinitionNode) and operation.operation is OperationType.MUTATION
    )
    return [name for operation in mutations for name in _fields(operation.selection_set.selections) if name not in OWN]


def argument_values(query: str, variables: object, mutation: str, argument: str) -> list[str]:
    """The values of an argument in all uses of a mutation in a document. Raises as `changes`."""
    if mutation not in query:
        return []
    known = variables if isinstance(variables, dict) else {}
    values = []
    for definition in parse(query, no_location=True).definitions:
        if not isinstance(definition, OperationDefinitionNode):
            continue
        for field in definition.selection_set.selections:
            if isinstance(field, FieldNode) and field.name.value == mutation:
                values += [value_from_ast_untyped(a.value, known) for a in field.arguments if a.name.value == argument]
    return [value for value in values if isinstance(value, str)]


def refusal(query: str, method: str, kind: str, of_person: str) -> str:
    """Why this document is rejected; "" if it is not.

    `kind` is the content type of the request; `of_person` is why the person may not change anything, or "".
    """
    try:
        named = ", ".join(changes(query))
    except (GraphQLError, RecursionError) as error:
        return f"the document cannot be read: {error}"
    if named and (method != "POST" or kind.partition(";")[0].strip().lower() not in TYPES):
        return f"{named}: found {method} of {kind or 'no type'}, expected a mutation by POST, as {' or '.join(TYPES)}"
    return f"{named}: {of_person}" if named and of_person else ""


def _fields(selections: tuple[SelectionNode, ...]) -> Iterator[str]:
    """The names of fields; "a fragment" for a fragment, which may contain any field."""
    for selection in selections:
        yield selection.name.value if isinstance(selection, FieldNode) else "a fragment"
