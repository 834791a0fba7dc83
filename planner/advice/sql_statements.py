"""Scans of one table in SQL statements: the conditions of each SELECT, UPDATE or DELETE on the table's own columns."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.tokenizer_core import TokenType

from planner.advice.workload import Query, Workload, is_named
from planner.report.scan_plan import shortened
from puffin_index.definition.column_names import spelled_like
from puffin_index.errors import PuffinIndexError

_DIALECT = "spark"
_SHOWN = 60
_TYPED_TEXTS = {
    exp.DataType.Type.DATE: "DATE",
    exp.DataType.Type.TIMESTAMP: "TIMESTAMP_NTZ",
    exp.DataType.Type.TIMESTAMPNTZ: "TIMESTAMP_NTZ",
    exp.DataType.Type.TIMESTAMPTZ: "TIMESTAMP",
    exp.DataType.Type.TIMESTAMPLTZ: "TIMESTAMP_LTZ",
}


def read_statements(text: str, table: Sequence[str], columns: Sequence[str]) -> Workload:
    """Read SQL statements between semicolons; one that begins with WHERE is a mere condition.

    The table's columns tell names without a table apart. Raises PuffinIndexError for text that is no SQL or has no
    statement.
    """
    queries: list[Query] = []
    skipped: list[str] = []
    others = 0
    used: Counter[str] = Counter()
    known = frozenset(columns)
    statements = _split(text)
    if not statements:
        raise PuffinIndexError("there is no SQL statement to learn from")
    for statement in statements:
        if statement[:6].upper() == "WHERE ":
            queries.append(Query(statement[6:].strip()))
            continue
        try:
            parsed = sqlglot.parse_one(statement, read=_DIALECT)
            found = list(_scans(parsed, table, known, used))
        except (SqlglotError, RecursionError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            skipped.append(f"{shortened(' '.join(statement.split()), _SHOWN)}: {reason}")
            continue
        queries += found
        others += not found
    return Workload.of(queries, skipped, others, used)


def _split(text: str) -> list[str]:
    try:
        tokens = sqlglot.tokenize(text, read=_DIALECT)
    except SqlglotError as error:
        raise PuffinIndexError(f"that is no SQL: {str(error).splitlines()[0]}") from error
    ends = [at for at, token in enumerate(tokens) if token.token_type == TokenType.SEMICOLON]
    # Comments are no tokens.
    statements = (tokens[start + 1 : end] for start, end in pairwise([-1, *ends, len(tokens)]))
    return [text[own[0].start : own[-1].end + 1] for own in statements if own]


@dataclass(frozen=True, slots=True)
class _Names:
    """How a statement names the columns of the table."""

    alias: str
    others: frozenset[str]
    columns: frozenset[str]

    def own_path(self, column: exp.Column) -> tuple[str, ...] | None:
        """Return the name of a column, struct by struct; None if it is not one of the table."""
        parts = tuple(part.name for part in column.parts)
        for qualified in range(1, len(parts)):
            if parts[qualified - 1].casefold() == self.alias and (own := self._own(parts[qualified:])):
                return own
        return None if parts[0].casefold() in self.others else self._own(parts)

    def _own(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the name of a column as the table spells its first part; as written if that may be several."""
        known = spelled_like(parts[0], self.columns)
        return (known[0] if len(known) == 1 else parts[0], *parts[1:]) if known else None


def _scans(parsed: exp.Expr, table: Sequence[str], columns: frozenset[str], used: Counter[str]) -> Iterator[Query]:
    if isinstance(parsed, exp.Update | exp.Delete):
        target = parsed.this
        if isinstance(target, exp.Table) and is_named(_parts(target), table):
            names = _Names(target.alias_or_name.casefold(), frozenset(), columns)
            yield _query(_conjuncts(parsed.args.get("where")), names, None)
        return
    for scope in traverse_scope(parsed):
        if isinstance(scope.expression, exp.Select):
            yield from _scans_of(scope, table, columns, used)


def _scans_of(scope: Scope, table: Sequence[str], columns: frozenset[str], used: Counter[str]) -> Iterator[Query]:
    sources: Mapping[str, object] = scope.sources
    for alias, source in sources.items():
        if not isinstance(source, exp.Table) or not is_named(_parts(source), table):
            continue
        others = frozenset(name.casefold() for name in sources if name != alias)
        names = _Names(alias.casefold(), others, columns)
        conditions = _conjuncts(scope.expression.args.get("where"))
        for join in scope.expression.args.get("joins") or ():
            # The condition of an outer join keeps no row of its preserved side away.
            conditions += [] if join.side else _conjuncts(join.args.get("on"))
        used.update({path for condition in conditions if (path := _joined(condition, names)) is not None})
        query = _query(conditions, names, _columns_read(scope, names))
        answerable = _answerable(scope.expression, names) if len(sources) == 1 else None
        if answerable is not None and all(_own_text(condition, names) is not None for condition in conditions):
            query = replace(query, groups=answerable[0], held=answerable[1])
        yield query


def _joined(condition: exp.Expr, names: _Names) -> str | None:
    """The column of the table that is compared with a column of another table, or with a subquery."""
    if isinstance(condition, exp.In) and condition.args.get("query") is not None:
        sides = [condition.this]
    elif isinstance(condition, exp.EQ) and condition.left.find(exp.Column) and condition.right.find(exp.Column):
        sides = [condition.left, condition.right]
    else:
        return None
    own = [path for side in sides if isinstance(side, exp.Column) and (path := names.own_path(side)) is not None]
    return ".".join(own[0]) if len(own) == 1 else None


def _answerable(select: exp.Expr, names: _Names) -> tuple[frozenset[str], frozenset[str]] | None:
    """The columns that a query groups by, and these with those of its aggregates; None if it wants anything else."""
    if not isinstance(select, exp.Select):
        return None
    selected = [projection.unalias() for projection in select.selects]
    group, is_distinct = select.args.get("group"), select.args.get("distinct") is not None
    by = [_grouped(part, selected) for part in group.expressions] if group is not None else []
    by = by or (selected if is_distinct else [])
    asked = [part for part in selected if part not in by]
    if not all(isinstance(part, exp.Count | exp.Sum | exp.Avg | exp.Min | exp.Max) for part in asked):
        return None
    arguments = [part.this for part in asked if not isinstance(part.this, exp.Star)]
    paths = [names.own_path(part) if isinstance(part, exp.Column) else None for part in (*by, *arguments)]
    if not paths or None in paths:
        return None
    texts = [".".join(path or ()) for path in paths]
    return frozenset(texts[: len(by)]), frozenset(texts)


def _grouped(part: exp.Expr, selected: Sequence[exp.Expr]) -> exp.Expr:
    """What a part of GROUP BY means: `1` is the first column that is selected."""
    is_place = isinstance(part, exp.Literal) and str(part.this).isdigit() and 0 < int(part.this) <= len(selected)
    return selected[int(part.this) - 1] if is_place else part


def _parts(table: exp.Table) -> list[str]:
    return [part.name for part in table.parts]


def _conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    if condition is None:
        return []
    condition = (condition.this if isinstance(condition, exp.Where) else condition).unnest()
    if not isinstance(condition, exp.And):
        return [condition]
    return [part for side in condition.flatten() for part in _conjuncts(side)]


def _query(conditions: Sequence[exp.Expr], names: _Names, columns: frozenset[str] | None) -> Query:
    texts = [text for condition in conditions if (text := _own_text(condition, names)) is not None]
    if len(texts) > 1:
        texts = [f"({text})" for text in texts]
    return Query(" AND ".join(texts) or None, columns)


def _own_text(condition: exp.Expr, names: _Names) -> str | None:
    """Return a condition in our dialect; None if it is not one on columns of the table alone."""
    if condition.find(exp.Query) is not None:
        return None
    copied = condition.copy()
    # The root is replaced, too, if it is a mere column.
    holder = exp.Paren(this=copied)
    found = list(holder.find_all(exp.Column))
    if not found:
        return None
    for column in found:
        path = names.own_path(column)
        if path is None:
            return None
        column.replace(exp.column(*reversed([exp.to_identifier(part, quoted=True) for part in path[:4]])))
    for literal in list(holder.find_all(exp.Cast)):
        if (plain := _literal_text(literal)) is not None:
            literal.replace(exp.Var(this=plain))
    return str(holder.this.sql(dialect=_DIALECT, comments=False))


def _literal_text(cast: exp.Cast) -> str | None:
    """Return a literal with a type as users write it; sqlglot makes a cast of it."""
    value, target = cast.this, cast.to.this
    if not isinstance(value, exp.Literal):
        return None
    if value.is_string and target in _TYPED_TEXTS:
        return f"{_TYPED_TEXTS[target]} {value.sql(dialect=_DIALECT)}"
    is_number = target in exp.DataType.NUMERIC_TYPES
    return str(value.this) if is_number and not (value.is_string and target in exp.DataType.TEXT_TYPES) else None


def _columns_read(scope: Scope, names: _Names) -> frozenset[str] | None:
    select = scope.expression
    if not isinstance(select, exp.Select) or any(projection.is_star for projection in select.selects):
        return None
    paths = (names.own_path(column) for column in scope.columns)
    return frozenset(path[0] for path in paths if path is not None)
