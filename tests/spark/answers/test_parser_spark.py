"""The parser against Spark SQL: the same texts select the same rows, and what Spark rejects is rejected."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from planner.where.parser import parse_where
from tests.conftest import amount
from tests.oracle import Row
from tests.planner.laws.expression_oracle import selects
from tests.planner.where.test_parser import ERRORS
from tests.planner.where.where_text import predicates, render

pytestmark = pytest.mark.spark

ZONE = "Europe/Berlin"
MOMENT = datetime(2024, 1, 1)
MICROSECOND = timedelta(microseconds=1)
# The SQL type of each column and values that it takes.
TABLE: dict[str, tuple[str, list[Any]]] = {
    "i": ("bigint", [None, -3, -1, 0, 1, 2, 3, 2**31, 2**63 - 1, -(2**63)]),
    "d": ("decimal(10,2)", [None, *map(Decimal, ("-2.00", "-0.01", "0.00", "0.10", "1.50", "2.00", "99999999.99"))]),
    "f": ("double", [None, math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 1.0, -1.5, 5e-324, 3.0]),
    "g": ("float", [None, math.nan, 0.0, 0.10000000149011612, 1.5, 16777216.0]),
    "s": (
        "string",
        [None, "", "a", "ab", "abc", "a%", "%", "_", "it's", '"', "\\", "\\%", "a\nb", "ÄÖ", "😀", "a😀b", "--", "/*"],
    ),
    "b": ("boolean", [None, True, False]),
    "dt": ("date", [None, date(1, 1, 1), date(2023, 12, 31), date(2024, 1, 1), date(9999, 12, 31)]),
    "nt": ("timestamp_ntz", [None, datetime(1, 1, 2), MOMENT, MOMENT - MICROSECOND, datetime(9999, 12, 30)]),
    "ts": (
        "timestamp",
        [
            None,
            *(MOMENT.replace(tzinfo=UTC) + timedelta(hours=hours) for hours in (-1, 0, 1)),
            datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
            datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
            datetime(2024, 10, 27, 1, 30, tzinfo=UTC),
        ],
    ),
    "x": ("binary", [None, b"", b"\x1f", b"\x01\x23", b"a"]),
    "odd `name`": ("int", [None, 1, 2]),
}
_CHOICES = random.Random(1)
ROWS: list[Row] = [{name: _CHOICES.choice(values) for name, (_, values) in TABLE.items()} for _ in range(100)]

DECIDED = r'''
i = 1
1 = i
i == - 1
i <> 1 and not i <=> 2
i !> 1 or i !< 2147483648
-9223372036854775808 = i
i = 9223372036854775808
i <= 9223372036854775807
d < 9223372036854775807.5 and d is not null
not i > -9223372036854775808
i >= 1.5
i in (1, 1.0, 2147483648L, -3Y, 0S)
i in (null, 1)
i not in (1, 2)
not i in (1, null)
(i in (1, null)) is null
i in (null)
i between -1 and 1
i not between -1 and 1
i between null and 1
not i between 1 and null
5 between i and 7
i = null
not (i = null)
i <=> null
not i <=> null
i is distinct from 1
i is not distinct from null
(i = 1) is null
(i = 1) is not true
i = 1 is false
i is unknown
isnull(i) or isnotnull(d)
d = 1.5
d = 1.50BD
d > 1e-1BD
d <= 2
d in (0.1, 1.5, 2)
d <> 0
d < 1e2
d = 0.1D
f = 0.1
f = 0.1D
f = 1e-1
f = 1
f = 0.0
f = -0.0
f > 1e0
f < 1e0
not f < 1e0
f <= 1.7976931348623157E308
f = 5e-324
f in (0.1D, 3d)
f between 0 and 1
isnan(f)
not isnan(f)
g = 0.1F
g = 0.1
g >= 1.5f
g = 16777217
g = 16777217F
g < 1.00000017881393432617187499F
isnan(g) or g is null
s = 'it''s'
s = 'it\'s'
s = "it's"
s = '"' or s = """" or s = "\""
s = 'a' 'b'
s = 'a' "b" r'c'
s = '\\' or s = r'\'
s = '\%'
s = '\\%'
s = 'a\nb' or s = '\u00c4Ö' or s = '\U0001F600'
s = '\141\142'
s = '--' or s = '/*' -- '
s /* ' */ < 'b'
s >= '_'
s in ('', 'a', "ab", null)
s not in ('', 'a')
s like 'a%'
s not like 'a%'
s like 'a'
s not like 'a'
s like '%'
s like ''
s like 'a_'
s like 'a_b'
s not like '_'
s like '%b'
s like '%\_%'
s like '\%'
s like r'\%'
s like '\\\\\%'
s like '!%' escape '!'
s like 'a!%' escape '!' or s like '!_'  escape '!'
s not like '%a%'
s like null
startswith(s, 'a')
not startswith(s, 'a')
startswith(s, '\%')
startswith(s, '')
b
not b
!b
b is true
b is not true
b is false
b is not false
b = true
b <> true
b < true
b in (true, false)
b <=> null
b and i > 0 or not b
dt = date '2024-01-01'
dt > DATE'2023-12-31'
dt <= date '2024-1-1T12:00'
dt in (date '0001-01-01', date '9999-12-31')
dt = date '2024'
nt = timestamp_ntz '2024-01-01 00:00:00'
nt >= timestamp_ntz '2023-12-31T23:59:59.999999'
nt > timestamp_ntz '2023-12-31 23:59:59.9999999'
nt = timestamp_ntz '2024-01-01 00:00:00+05:00'
ts = timestamp '2024-01-01 00:00:00Z'
ts = timestamp '2024-01-01 01:00:00'
ts = timestamp_ltz '2024-01-01 05:30:00 +5:30'
ts = timestamp '2024-01-01 0:0:0 UTC+1'
ts > timestamp '2024'
ts >= timestamp '2024-03-31 02:30:00'
ts = timestamp '2024-10-27 02:30:00'
ts in (timestamp '2024-01-01', timestamp '2024-10-27 02:30')
x = X'1f'
x = x'123' or x = X''
x > X'01'
`odd ``name``` = 1
`I` = 1 and I < 2 and S = 'a'
true
false or i = 1
not null
null or i = 1
null and i = 1
1 = 1.00 and 'a' < 'b'
2 > 3 or 1.5 < 1
null <=> null
not not not (i = 1 and not (d = 2 or s = 'a'))
i = 1 or i = 2 and s = 'a'
not i = 1 or b
(((i))) = ((1))
NOT(i IS NULL)AND(b)
i>=0 and i<3
i
 =
	1
'''.strip().split("\n")
# The last texts have line ends and tabs in them.
DECIDED = [*DECIDED[:-3], "\n".join(DECIDED[-3:]), "i=1\u00a0or\u3000i=2", "s = 'tab\there' or s = 'a\nb'"]

# The first one stays the first: after ARRAY or MAP, Spark's lexer takes >> for the ends of two types.
OPEN = """
i div 2 = 1 or shiftleft(i, 1) = 2 or i << 1 = 4 or i >> 1 = 1 or i >>> 1 = 1
i < 9223372036854775808
not i >= 9223372036854775807.5
(i > -9223372036854775809) is not null
i = d
d + 1 = 2
-d = 1
i = - -1
i % 2 = 1 and b
abs(d) = 2
i in (1, '2')
i in (1, i)
i in (1 + 1, 2)
(i, b) in ((1L, true))
s like case when b then 'a%' else 'b_' end
s like concat('a', '%')
s like any ('a', 'b')
s ilike 'A'
s not rlike '^a'
s || 'x' = 'ax'
case when b then i else 0 end = 1
case i when 1 then b end
if(b, i, 2) = 1
cast(i as string) = '1'
i::string = '1'
dt >= current_date
dt >= current_date() - interval 1 day
ts < current_timestamp()
ts = timestamp '2024-01-01 00:00:00 Europe/Paris'
ts > timestamp 'epoch'
dt = date 'today'
nt > timestamp_ntz '2024-01-01' - interval '1' hour
exists (select 1)
not exists (select 1)
(i = 1) = b
i = 1 = b
(i = 1 and b) is true
array(i)[0] = 1
map('k', i)['k'] = 1
named_struct('k', i).k = 1
s collate utf8_lcase = 'A'
i & 1 = 1 or i | 1 = 1 or i ^ 1 = 0 or ~i = -2
""".strip().split("\n")

# What Spark takes and the parser does not.
STRICTER = {
    "'x' ^AND b",  # a string as a condition
    "a = 1^;",  # the end of a statement
    r"a = ^'\U00110000'",
}


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[str]:
    """A view with a row number and the columns of TABLE, in a session of another time zone than the machine's."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    columns = ", ".join(f"`{name.replace('`', '``')}` {sql_type}" for name, (sql_type, _) in TABLE.items())
    rows = [(number, *row.values()) for number, row in enumerate(ROWS)]
    spark.createDataFrame(rows, f"id int, {columns}").createOrReplaceTempView("parser_rows")
    yield "parser_rows"
    spark.catalog.dropTempView("parser_rows")
    assert zone is not None
    spark.conf.set("spark.sql.session.timeZone", zone)


def spark_selects(spark: SparkSession, table: str, texts: list[str]) -> list[list[bool]]:
    """Return for each text whether Spark selects each of ROWS."""
    conditions = ", ".join(f"coalesce(({text}\n), false) AS c{number}" for number, text in enumerate(texts))
    found = sorted(spark.sql(f"SELECT id, {conditions} FROM {table}").collect(), key=lambda row: int(row["id"]))
    return [[bool(row[f"c{number}"]) for row in found] for number in range(len(texts))]


def parser_selects(text: str) -> list[bool | None]:
    expression = parse_where(text, session_zone=ZoneInfo(ZONE))
    rows = [{**row, "I": row["i"], "S": row["s"]} for row in ROWS]
    return [selects(expression, row) for row in rows]


def test_texts_select_the_rows_that_spark_selects(spark: SparkSession, table: str) -> None:
    found = spark_selects(spark, table, DECIDED)
    differing = [text for text, selected in zip(DECIDED, found, strict=True) if parser_selects(text) != selected]
    assert differing == []
    # A text that selects nothing proves little; those that should are counted.
    assert sum(any(selected) for selected in found) >= len(DECIDED) * 4 // 5


def test_open_texts_are_spark_sql_and_never_exclude_a_row_that_spark_selects(spark: SparkSession, table: str) -> None:
    for text, selected in zip(OPEN, spark_selects(spark, table, OPEN), strict=True):
        ours = parser_selects(text)
        assert None in ours, text
        assert all(mine is not False for mine, theirs in zip(ours, selected, strict=True) if theirs), text


@pytest.mark.parametrize("marked", [text for text, _ in ERRORS if text not in STRICTER])
def test_text_that_the_parser_rejects_spark_rejects_too(spark: SparkSession, marked: str) -> None:
    text = marked.replace("^", "", 1)
    with pytest.raises(PySparkException):
        spark.sql(f"SELECT * FROM VALUES ('x', TRUE, 2) AS rows(a, b, c) WHERE {text}").collect()


@settings(max_examples=amount(4, 200), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(predicates.flatmap(render), min_size=30, max_size=30))
def test_law_random_texts_select_the_rows_that_spark_selects(spark: SparkSession, table: str, texts: list[str]) -> None:
    found = spark_selects(spark, table, texts)
    assert [text for text, selected in zip(texts, found, strict=True) if parser_selects(text) != selected] == []
