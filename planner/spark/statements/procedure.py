"""What a procedure is: a name, parameters with types and defaults, the columns of its result, and a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from planner.spark.statements.session import StatementSession
from puffin_index.errors import NotFoundError, UnsupportedError

Value: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Sequence[Value]
SqlType: TypeAlias = Literal["string", "bigint", "double", "boolean"]
"""Types by their SQL names."""

_PYTHON_TYPES: dict[SqlType, tuple[type, ...]] = {
    "string": (str,),
    "bigint": (int,),
    "double": (float, int),
    "boolean": (bool,),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter.

    Attributes:
        default: The default; ignored for a required parameter.
        is_required: Whether calls must give the parameter.
    """

    name: str
    type: SqlType = "string"
    default: Value = None
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result."""

    name: str
    type: SqlType = "string"


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure of `puffin.system`.

    Attributes:
        parameters: The parameters, the required ones first.
        run: The function: takes the session and all parameters by name, and returns the rows of the result.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    columns: tuple[ResultColumn, ...]
    run: Callable[..., Iterable[Row]]

    def call(self, session: StatementSession, arguments: Mapping[str, Value]) -> list[Row]:
        """Call the procedure.

        Args:
            arguments: The arguments by name; parameters that are left out, or NULL, have their defaults.

        Raises:
            NotFoundError: If there is no such parameter.
            UnsupportedError: If a required argument is missing, or an argument has another type.
            PuffinIndexError: Whatever the function raises.
        """
        names = {parameter.name for parameter in self.parameters}
        unknown = sorted(arguments.keys() - names)
        if unknown:
            raise NotFoundError(f"procedure {self.name} has no parameter {unknown[0]!r}; it has: {self.signature}")
        bound = {parameter.name: self._argument(parameter, arguments) for parameter in self.parameters}
        return list(self.run(session, **bound))

    @property
    def signature(self) -> str:
        """The parameters as text."""
        return ", ".join(
            f"{one.name} {one.type}" + ("" if one.is_required else f" default {_literal(one.default)}")
            for one in self.parameters
        )

    def _argument(self, parameter: Parameter, arguments: Mapping[str, Value]) -> Value:
        value = arguments.get(parameter.name)
        if value is None:
            if parameter.is_required:
                raise UnsupportedError(f"procedure {self.name} needs {parameter.name}; it has: {self.signature}")
            return parameter.default
        wanted = _PYTHON_TYPES[parameter.type]
        # In Python, True is an int.
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise UnsupportedError(
                f"procedure {self.name}: {parameter.name} should be a {parameter.type}, not {value!r}"
            )
        return value

    def describe(self) -> dict[str, object]:
        """The procedure as Spark's side wants it."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": [
                {"name": one.name, "type": one.type, "required": one.is_required} for one in self.parameters
            ],
            "columns": [{"name": one.name, "type": one.type} for one in self.columns],
        }


def _literal(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case str():
            return f"'{value}'"
        case _:
            return str(value)
