"""A fact table in several forms and its dimensions, and random queries over them: joins, subqueries, first rows."""

from random import Random

from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from tests.conftest import built
from tests.spark.agreement import row_groups_of

NAMESPACE = "shapes"
ROWS, ROW_GROUP_ROWS = 6_000, 200

LAYOUT = f"{row_groups_of(ROW_GROUP_ROWS)}, 'write.delete.mode'='merge-on-read'"
FORMS = {
    "plain": ("'format-version'='2'", ""),
    "parted": ("'format-version'='2'", "PARTITIONED BY (part)"),
    "deleted": ("'format-version'='2'", ""),
    "vectors": ("'format-version'='3'", ""),
}
_COLUMNS = {
    "i": f"IF(id % 17 = 0, NULL, CAST((id * 7919) % {ROWS} AS INT))",
    "l": "IF(id % 23 = 0, NULL, (id * 104729) % 5003)",
    "s": f"IF(id % 19 = 0, NULL, CONCAT('k', (id * 31) % {ROWS // 3}))",
    "d": "CAST((id * 13) % 900 AS DECIMAL(9, 2))",
    "x": "CASE id % 29 WHEN 0 THEN DOUBLE('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN 0.0D WHEN 3 THEN NULL "
    "ELSE CAST((id * 37) % 1009 AS DOUBLE) - 300 END",
    "t": "DATE_ADD(DATE '2020-01-01', CAST(id DIV 20 AS INT))",
    "part": "CAST(id % 3 AS INT)",
    "id": "id",
}
_DIMENSION = {
    "i": f"IF(id % 5 = 0, NULL, CAST((id * 11) % {ROWS} AS INT))",
    "l": "IF(id % 7 = 0, NULL, (id * 29) % 6000)",
    "s": "CONCAT('k', id * 3)",
    "d": "CAST(id * 7 AS DECIMAL(12, 4)) + IF(id % 2 = 0, 0, 0.005)",
    "x": "CASE id % 4 WHEN 0 THEN DOUBLE('NaN') WHEN 1 THEN 0.0D WHEN 2 THEN -0.0D ELSE CAST(id AS DOUBLE) END",
    "t": "DATE_ADD(DATE '2020-01-01', CAST(id AS INT))",
    "part": "CAST(id % 2 AS INT)",
    "name": "CONCAT('n', id % 10)",
    "id": "id",
}
SMALL_ROWS = {"few": 9, "many": 400, "none": 0}
"""Dimensions by name, and how many rows each has."""


def create(spark: SparkSession, catalog: SqlCatalog) -> None:
    spark.sql(f"CREATE NAMESPACE lake.{NAMESPACE}")
    for name, rows in SMALL_ROWS.items():
        columns = ", ".join(f"{text} AS {column}" for column, text in _DIMENSION.items())
        spark.sql(f"CREATE TABLE lake.{NAMESPACE}.{name} USING iceberg AS SELECT {columns} FROM RANGE({rows})")
    columns = ", ".join(f"{text} AS {column}" for column, text in _COLUMNS.items())
    for name, (properties, partitioning) in FORMS.items():
        full = f"lake.{NAMESPACE}.{name}"
        spark.sql(
            f"CREATE TABLE {full} USING iceberg {partitioning} TBLPROPERTIES ({properties}, {LAYOUT}) "
            f"AS SELECT * FROM (SELECT {columns} FROM RANGE(0, {ROWS}, 1, 1)) LIMIT 0"
        )
        half = ROWS // 2
        for start, end in ((0, half), (half, ROWS)):
            spark.sql(f"INSERT INTO {full} SELECT {columns} FROM RANGE({start}, {end}, 1, 1)")
        built(catalog, f"{NAMESPACE}.{name}", bitmap=["i", "s", "part", "d"], bsi=["l", "x", "t"], bloom=["s"])
        if name in ("deleted", "vectors"):
            spark.sql(f"DELETE FROM {full} WHERE id % 5 = 0 AND id < {half}")
            spark.sql(f"INSERT INTO {full} SELECT {columns} FROM RANGE({ROWS}, {ROWS + 50}, 1, 1)")


_SETTINGS = {
    "spark.sql.adaptive.enabled": ("true", "false"),
    "spark.sql.autoBroadcastJoinThreshold": ("10MB", "-1"),
    "spark.sql.exchange.reuse": ("true", "false"),
    "spark.sql.ansi.enabled": ("true", "false"),
}


def random_settings(random: Random) -> dict[str, str]:
    """Settings that make Spark plan joins in other ways; mostly Spark's own."""
    return {name: random.choices(values, (3, 1))[0] for name, values in _SETTINGS.items()}


def random_where(random: Random, table: str) -> str:
    """Return a condition on the rows of a fact table, which any number of them may satisfy."""
    number = random.randrange(ROWS)
    one = [
        f"{table}.i < {number}",
        f"{table}.l BETWEEN {number % 5003} AND {number % 5003 + 400}",
        f"{table}.s LIKE 'k1%'",
        f"{table}.s IN ('k3', 'k30', 'k{number % 2000}')",
        f"{table}.x = 0",
        f"{table}.x > {number % 700}",
        f"{table}.t >= DATE '2020-06-01'",
        f"{table}.part = {number % 3}",
        f"{table}.i IS NULL",
        f"NOT ({table}.d = {number % 900} OR {table}.l < 2500)",
        f"UPPER({table}.s) LIKE 'K1%9'",
        f"ABS({table}.i - {number}) < 20",
        f"{table}.l % 1000 = {number % 1000}",
        f"YEAR({table}.t) = 2020 AND MONTH({table}.t) = {number % 12 + 1}",
        f"{table}.part + 1 = {number % 4}",
        f"ROUND({table}.x, -1) = {number % 70 * 10}",
        f"COALESCE({table}.i, {number}) = {number}",
    ]
    return " AND ".join(random.sample(one, random.choice([0, 1, 1, 2]))) or "TRUE"


class RandomQuery:
    """One random query; the same query has the same rows each time, but for their order."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._fact = f"lake.{NAMESPACE}.{random.choice(list(FORMS))}"
        shapes = [self._joined, self._left_joined, self._in, self._exists, self._scalar, self._star, self._self_joined]
        shapes += [self._first, self._first, self._first, self._limited, self._nested, self._ranked]
        shapes += [self._subqueries, self._subqueries, self._compared, self._compared]
        self.sql: str = random.choice(shapes)()

    def _dimension(self) -> str:
        name = f"lake.{NAMESPACE}.{self._random.choice(list(SMALL_ROWS))}"
        where = self._random.choice(["", "WHERE id < 3", "WHERE name = 'n3'", "WHERE i IS NOT NULL AND l > 100"])
        return f"(SELECT * FROM {name} {where})"

    def _column(self) -> str:
        return self._random.choice(["i", "l", "s", "d", "x", "t", "part"])

    def _where(self, table: str = "f") -> str:
        return random_where(self._random, table)

    def _on(self, left: str, right: str) -> str:
        pairs = [(column, column) for column in ("i", "l", "s", "d", "x", "t", "part")]
        pairs += [("i", "l"), ("l", "i"), ("x", "i"), ("d", "i"), ("i", "id"), ("part", "id")]
        chosen = self._random.sample(pairs, self._random.choice([1, 1, 1, 2]))
        operator = self._random.choice(["=", "=", "=", "=", "<=>"])
        return " AND ".join(f"{left}.{mine} {operator} {right}.{theirs}" for mine, theirs in chosen)

    def _counted(self, source: str, where: str) -> str:
        return f"SELECT COUNT(*), SUM(f.id), MIN(f.s), MAX(f.l) FROM {source} WHERE {where}"

    def _joined(self) -> str:
        kind = self._random.choice(["JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        source = f"{self._fact} f {kind} {self._dimension()} e ON {self._on('f', 'e')}"
        return self._counted(source, "TRUE" if kind in ("RIGHT JOIN", "FULL JOIN") else self._where())

    def _left_joined(self) -> str:
        kind = self._random.choice(["LEFT JOIN", "JOIN", "RIGHT JOIN"])
        return self._counted(f"{self._dimension()} e {kind} {self._fact} f ON {self._on('e', 'f')}", "TRUE")

    def _in(self) -> str:
        column = self._column()
        negated = self._random.choice(["", "", "", "NOT"])
        return self._counted(f"{self._fact} f", f"f.{column} {negated} IN (SELECT {column} FROM {self._dimension()})")

    def _exists(self) -> str:
        negated = self._random.choice(["", "", "NOT"])
        exists = f"{negated} EXISTS (SELECT 1 FROM {self._dimension()} e WHERE {self._on('f', 'e')})"
        return self._counted(f"{self._fact} f", f"{exists} {self._random.choice(['AND', 'OR'])} {self._where()}")

    def _scalar(self) -> str:
        column, function = self._column(), self._random.choice(["MIN", "MAX"])
        operator = self._random.choice(["=", "<", "<=", ">", ">=", "<>"])
        value = f"(SELECT {function}({column}) FROM {self._dimension()})"
        comparison = (
            f"f.{column} {operator} {value}" if self._random.random() < 0.7 else f"{value} {operator} f.{column}"
        )
        return self._counted(f"{self._fact} f", f"{comparison} AND {self._where()}")

    def _compared(self) -> str:
        """Comparisons with computed values of scalar subqueries, some without a row, beside keys with subqueries."""
        where = [self._where()]
        for column in self._random.choices(["i", "l", "x"], k=self._random.choice([1, 2, 4])):
            end, operator = self._random.choice(["MIN", "MAX"]), self._random.choice(["=", "<", "<=", ">", ">="])
            row = f"(SELECT {column} FROM {self._dimension()} WHERE id = {self._random.randrange(9)})"
            value = self._random.choice([row, f"(SELECT {end}({column}) FROM {self._dimension()})"])
            forms = ["{}", "{} + 1", "COALESCE({}, 70)", "ABS({} - (SELECT MIN(id) FROM {}))", "NULLIF({}, 31)"]
            where.append(f"f.{column} {operator} {self._random.choice(forms).format(value, self._dimension())}")
        if self._random.random() < 0.5:
            column = self._column()
            least = f"(SELECT MIN(id) FROM {self._dimension()})"
            where.append(f"f.{column} IN (SELECT {column} FROM {self._dimension()} WHERE id >= {least})")
        return self._counted(f"{self._fact} f", " AND ".join(where))

    def _value(self) -> str:
        """A scalar subquery over the fact table, of any shape."""
        few = f"SELECT id FROM {self._fact} f WHERE {self._where()} ORDER BY {self._order()} {self._limit()}"
        one = f"SELECT id FROM {self._fact} f WHERE {self._where()} ORDER BY {self._order()} LIMIT 1"
        joined = f"{self._fact} f JOIN {self._dimension()} e ON {self._on('f', 'e')}"
        return self._random.choice(
            [
                f"SELECT MAX(f.id) FROM {self._fact} f WHERE {self._where()}",
                f"SELECT COUNT(*) FROM {self._fact} f WHERE {self._where()}",
                f"SELECT SUM(f.id) FROM {joined} WHERE {self._where()}",
                f"SELECT SUM(id) FROM ({few})",
                one,
            ]
        )

    def _subqueries(self) -> str:
        """Scalar subqueries that Spark may merge, beside a query of the same table."""
        values = ", ".join(f"({self._value()}) AS v{number}" for number in range(self._random.choice([1, 2, 2, 3])))
        if self._random.random() < 0.5:
            return f"SELECT {values}"
        return self._counted(
            f"{self._fact} f", f"f.id > ({self._value()}) AND f.l < ({self._value()}) AND {self._where()}"
        )

    def _star(self) -> str:
        source = f"{self._fact} f JOIN {self._dimension()} e ON {self._on('f', 'e')}"
        source += f" JOIN {self._dimension()} g ON {self._on('f', 'g')}"
        return self._counted(source, self._where())

    def _self_joined(self) -> str:
        column = self._random.choice(["i", "s", "l"])
        return self._counted(
            f"{self._fact} f JOIN {self._fact} h ON f.{column} = h.{column}", f"h.id < 40 AND {self._where()}"
        )

    def _order(self) -> str:
        """An order that leaves no choice between rows."""
        directions = ["", "DESC", "ASC NULLS LAST", "DESC NULLS FIRST"]
        columns = self._random.sample(["i", "l", "s", "d", "x", "t", "part"], 2)
        return ", ".join(f"{column} {self._random.choice(directions)}" for column in columns) + ", id"

    def _limit(self) -> str:
        offset = self._random.choice(["", "", f"OFFSET {self._random.choice([1, 30, 7000])}"])
        return f"LIMIT {self._random.choice([0, 1, 5, 40, 700, 9000])} {offset}"

    def _first(self) -> str:
        columns = self._random.choice(["*", "id, i + 1 AS j", "x, id, s", "l AS i, i AS l, id, x, s, d, t, part"])
        first = f"SELECT * FROM {self._fact} f WHERE {self._where()} ORDER BY {self._order()} {self._limit()}"
        return f"SELECT {columns} FROM ({first})"

    def _ranked(self) -> str:
        rank = self._random.choice(["RANK", "DENSE_RANK", "ROW_NUMBER"])
        order = self._order() if rank == "ROW_NUMBER" else self._order().removesuffix(", id")
        partition = self._random.choice(["", "", "PARTITION BY part"])
        ranked = (
            f"SELECT id, {rank}() OVER ({partition} ORDER BY {order}) AS n FROM {self._fact} f WHERE {self._where()}"
        )
        return f"SELECT id, n FROM ({ranked}) WHERE n <= {self._random.choice([1, 4, 50])}"

    def _limited(self) -> str:
        # Which rows come is Spark's choice, how many is not.
        where = self._where()
        return (
            f"SELECT COUNT(*), COUNT_IF({where}) = COUNT(*) FROM "
            f"(SELECT * FROM {self._fact} f WHERE {where} {self._limit()}) f"
        )

    def _nested(self) -> str:
        """Both a part of the rows and all of them."""
        where, order = self._where(), self._order()
        few = f"SELECT id FROM {self._fact} f WHERE {where} ORDER BY {order} {self._limit()}"
        whole = f"SELECT COUNT(*) AS id FROM {self._fact} f WHERE {where}"
        return f"SELECT COUNT(*), SUM(id) FROM ({few}) UNION ALL SELECT SUM(id), 0 FROM ({whole})"
