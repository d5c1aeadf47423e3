"""Every mutation of the webserver's GraphQL as a query with arguments of the right shape, made from the schema itself.

A mutation that a later version of Dagster adds is one of them, so that no door is forgotten.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagster_graphql.schema import create_schema
from graphql import (
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLList,
    GraphQLNonNull,
    get_named_type,
    is_leaf_type,
)

SCALARS = {"Int": 1, "Float": 1.0, "Boolean": True}
OF_THE_READER = ("logTelemetry", "setNuxSeen")
"""The two that the UI sends for everybody: they concern what it remembers of its reader."""


@dataclass(frozen=True)
class AskedMutation:
    """One mutation as it is sent."""

    name: str
    query: str
    variables: Mapping[str, Any]

    @property
    def is_of_the_reader(self) -> bool:
        return self.name in OF_THE_READER


def every_mutation() -> list[AskedMutation]:
    """All mutations of the schema."""
    root = create_schema().graphql_schema.mutation_type
    assert root is not None
    mutations = []
    for name, field in sorted(root.fields.items()):
        kinds = {key: argument.type for key, argument in field.args.items()}
        typed = ", ".join(f"${key}: {kind}" for key, kind in kinds.items())
        arguments = ", ".join(f"{key}: ${key}" for key in kinds)
        selection = "" if is_leaf_type(get_named_type(field.type)) else "{ __typename }"
        query = f"mutation M{typed and f'({typed})'} {{ {name}{arguments and f'({arguments})'} {selection} }}"
        mutations.append(AskedMutation(name, query, {key: _value(kind) for key, kind in kinds.items()}))
    return mutations


def _value(kind: GraphQLInputType) -> Any:
    match kind:
        case GraphQLNonNull():
            return _value(kind.of_type)
        case GraphQLList():
            return [_value(kind.of_type)]
        case GraphQLInputObjectType():
            return {
                key: _value(field.type) for key, field in kind.fields.items() if isinstance(field.type, GraphQLNonNull)
            }
        case GraphQLEnumType():
            return next(iter(kind.values))
    return SCALARS.get(getattr(kind, "name", ""), "x")
