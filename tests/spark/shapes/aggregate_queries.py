"""Random aggregates over the fact tables of `shapes`."""

from random import Random

from tests.spark.shapes import shapes

_NUMBERS = ("i", "l", "d", "part", "x", "id")
_GROUPS = (
    *("part", "s", "d", "x", "t", "i"),
    *("YEAR(t)", "i % 10", "part + 1", "CONCAT(s, '!')", "CASE WHEN l > 2000 THEN 'high' END", "COALESCE(part, 9)"),
    *("DATE_TRUNC('MONTH', t)", "i % 3 + part", "x > 0"),
)
_SIGNED = (
    *("part * -0.0D", "part / -5", "x * 0", "-x", "FLOAT(l % 3) * -1", "CAST(CONCAT('-', part) AS DOUBLE)"),
    *("IF(part = 1, -0.0D, x)", "NULLIF(x, 4)", "x % 3", "NAMED_STRUCT('a', part * -0.0D, 'b', x)", "SQRT(part - 1)"),
)
"""Expressions that may be NaN and zeros of both signs; a group has one of each."""

_EXPRESSIONS = (
    *("i + 1", "l * 2", "-part", "LENGTH(s)", "YEAR(t)", "CAST(d AS DOUBLE)", "d * 3", "IF(l > 900, l, NULL)"),
    *("i % 10 + part", "CAST(part AS DECIMAL(38, 2))", "ABS(l - 2000)", "x + 1", "COALESCE(i, part)"),
)
"""Numbers that doubles add up exactly."""


class RandomAggregate:
    """One random query; the same query has the same rows each time, but for their order."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._fact = f"lake.{shapes.NAMESPACE}.{random.choice(list(shapes.FORMS))}"
        shape = random.choice([self._plain, self._plain, self._plain, self._joined, self._nested, self._union])
        self.sql: str = shape()

    def _one(self) -> str:
        column = self._random.choice(_NUMBERS)
        return self._random.choice(
            [
                "COUNT(*)",
                f"COUNT({column})",
                f"MIN({self._random.choice(['i', 'l', 'd', 's', 't', 'part'])})",
                f"MAX({self._random.choice(['i', 'l', 'd', 's', 't', 'part'])})",
                "ABS(MAX(x))",
                f"SUM({self._random.choice(['i', 'l', 'd', 'part'])})",
                f"AVG({self._random.choice(['i', 'l', 'd', 'part'])})",
                # Which of two zeros Spark takes depends on the order of the rows.
                "ABS(MIN(x))",
                "BOOL_OR(i > 100)",
                f"SUM(DISTINCT {self._random.choice(['part', 'd'])})",
                f"COUNT(DISTINCT {self._random.choice(['part', 's', 't', 'x', *_SIGNED])})",
                f"COUNT(*) FILTER (WHERE {shapes.random_where(self._random, 'f')})",
                f"COUNT(IF(l > {self._random.randrange(5000)}, 1, NULL))",
                f"SUM({self._random.choice(['i', 'l'])}) + COUNT(*)",
                f"SUM({self._random.choice(_EXPRESSIONS)})",
                f"AVG({self._random.choice(_EXPRESSIONS)}) FILTER (WHERE part < 2)",
                f"MAX({self._random.choice(_EXPRESSIONS)})",
                f"MIN({self._random.choice(['UPPER(s)', 'YEAR(t)', 'i % 7', 'CAST(d AS DOUBLE)'])})",
                f"COUNT(DISTINCT {self._random.choice(['part', 'd', 't'])}) FILTER (WHERE part = 1)",
                f"SUM(x) FILTER (WHERE {shapes.random_where(self._random, 'f')})",
            ]
        )

    def _plain(self) -> str:
        aggregates = [self._one() for _ in range(self._random.choice([0, 1, 1, 2, 4]))]
        groups = self._random.sample((*_GROUPS, *_SIGNED), self._random.choice([0, 0, 1, 1, 2]))
        if not aggregates and not groups:
            groups = [self._random.choice(_GROUPS)]
        named = [f"{text} AS c{number}" for number, text in enumerate([*groups, *aggregates])]
        sql = f"SELECT {', '.join(named)} FROM {self._fact} f WHERE {shapes.random_where(self._random, 'f')}"
        if groups:
            how = self._random.choice(["{}", "{}", "{}", "ROLLUP ({})", "CUBE ({})"])
            sql += f" GROUP BY {how.format(', '.join(groups))}"
        return sql + self._random.choice(["", "", " HAVING COUNT(*) > 3"]) if groups else sql

    def _joined(self) -> str:
        group, equal = self._random.choice(["part", *_SIGNED]), self._random.choice(["=", "<=>"])
        inner = f"SELECT {group} AS g, COUNT(*) AS n, MAX(l) AS m FROM {self._fact} f WHERE {self._where()} GROUP BY 1"
        other = f"SELECT {group} AS g, SUM(d) AS n FROM {self._fact} f WHERE {self._where()} GROUP BY 1"
        return f"SELECT a.g, a.n, a.m, b.n FROM ({inner}) a JOIN ({other}) b ON a.g {equal} b.g"

    def _nested(self) -> str:
        value = (
            f"SELECT {self._random.choice(['MAX(i)', 'MIN(i)', 'COUNT(*)'])} FROM {self._fact} f WHERE {self._where()}"
        )
        return f"SELECT COUNT(*), SUM(l), MIN(id) FROM {self._fact} f WHERE i < ({value})"

    def _union(self) -> str:
        return " UNION ALL ".join(
            f"SELECT COUNT(*), MAX(s), SUM(l) FROM {self._fact} f WHERE {self._where()}" for _ in range(2)
        )

    def _where(self) -> str:
        return shapes.random_where(self._random, "f")
