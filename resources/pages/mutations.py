"""Mutations: what changes something comes from a person who may change things, as a program or our own page sends it.

Dagster asks for a permission in each mutation, after it has looked at the arguments, or not at all. Here the question
stands once, before any of them, so that a mutation of a later version is no way around it. And what a browser sends for
another site without asking first (a picture, a link, a form) is never a mutation: those come by POST, as JSON
(https://graphql.github.io/graphql-over-http/draft/#sec-GET).
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
"""The UI sends these for everybody: they change nothing but what the UI itself remembers of its reader."""
TYPES = ("application/json", "application/graphql")
"""Of bodies that a browser sends to another site only after it has asked that site."""


def changes(query: str) -> list[str]:
    """What a document would change, by the fields of its mutations; empty for one that only reads.

    All its operations count, whichever is asked for. Raises GraphQLError for one that cannot be parsed: whether it is
    too deep for the parser depends on where that is called, so that another one might parse what this one did not.
    """
    if "mutation" not in query:  # the word cannot be written otherwise, and most documents are spared the parser
        return []
    mutations = (
        operation
        for operation in parse(query, no_location=True).definitions
        if isinstance(operation, OperationDefinitionNode) and operation.operation is OperationType.MUTATION
    )
    return [name for operation in mutations for name in _fields(operation.selection_set.selections) if name not in OWN]


def argument_values(query: str, variables: object, mutation: str, argument: str) -> list[str]:
    """What a document gives an argument of a mutation, each time that it asks for it. Raises as `changes`."""
    if mutation not in query:
        return []
    known = variables if isinstance(variables, dict) else {}
    values_found = []
    for definition in parse(query, no_location=True).definitions:
        for field in definition.selection_set.selections if isinstance(definition, OperationDefinitionNode) else ():
            if isinstance(field, FieldNode) and field.name.value == mutation:
                values_found += [
                    value_from_ast_untyped(a.value, known) for a in field.arguments if a.name.value == argument
                ]
    return [value for value in values_found if isinstance(value, str)]


def refusal(query: str, method: str, kind: str, of_person: str) -> str:
    """Why this document is not run; empty where it is.

    `kind` is the type of the request's body, `of_person` why the person may change nothing.
    """
    try:
        named = ", ".join(changes(query))
    except (GraphQLError, RecursionError) as error:
        return f"the document cannot be read: {error}"
    if named and (method != "POST" or kind.partition(";")[0].strip().lower() not in TYPES):
        return f"{named}: found {method} of {kind or 'no type'}, expected a mutation by POST, as {' or '.join(TYPES)}"
    return f"{named}: {of_person}" if named and of_person else ""


def _fields(selections: tuple[SelectionNode, ...]) -> Iterator[str]:
    """The names of fields; of a fragment, which may hold any, the word itself."""
    for selection in selections:
        yield selection.name.value if isinstance(selection, FieldNode) else "a fragment"
