"""The five SSB tables as DuckDB queries over TPC-H Parquet files, by the rules of the SSB paper and its data generator.

SSB (O'Neil, O'Neil, Chen, Revilak: Star Schema Benchmark, revision 3) is TPC-H reshaped: `lineorder` is lineitem joined
with orders, prices are whole cents, `partsupp` is gone, customer and supplier are smaller, part grows with log2 of the
scale factor, and `date` is a table. TPC-H keys are folded onto the smaller tables by modulo. Where the generator draws
a random number that TPC-H does not have, the MD5 of the key stands for it, so a scale factor gives one set of rows.
Keys, dates (yyyymmdd) and cents are INTEGER, but for the order key (BIGINT: its keys are sparse and outgrow 32 bits).
"""

import math
from pathlib import Path
from typing import Final

DATE_DAYS: Final = 2556
BRANDS_PER_CATEGORY: Final = 40
CITY_PREFIX_CHARACTERS: Final = 9
HOLIDAYS_MMDD: Final = (101, 220, 420, 520, 720, 820, 920, 1020, 1120, 1224)

# TPC-H rounds its small tables down to whole rows; a floor of one keeps every foreign key valid at tiny scales.
_CUSTOMERS_PER_SCALE: Final = 30_000
_SUPPLIERS_PER_SCALE: Final = 2_000
_PARTS_BASE: Final = 200_000


def customer_rows(scale_factor: float) -> int:
    """Count the customers: 30,000 for each unit of scale."""
    return max(1, int(_CUSTOMERS_PER_SCALE * scale_factor))


def supplier_rows(scale_factor: float) -> int:
    """Count the suppliers: 2,000 for each unit of scale."""
    return max(1, int(_SUPPLIERS_PER_SCALE * scale_factor))


def part_rows(scale_factor: float) -> int:
    """Count the parts: 200,000 * floor(1 + log2 SF), and in proportion below scale 1, where the rule has no value."""
    if scale_factor >= 1:
        return _PARTS_BASE * math.floor(1 + math.log2(scale_factor))
    return max(1, int(_PARTS_BASE * scale_factor))


def _draw(purpose: str, key: str, sides: int) -> str:
    """Give SQL for a number in 0 … sides-1 that depends on nothing but the key."""
    return f"CAST(md5_number_lower('{purpose}:' || {key}) % {sides} AS INTEGER)"


def _yyyymmdd(day: str) -> str:
    return f"CAST(year({day}) * 10000 + month({day}) * 100 + day({day}) AS INTEGER)"


def _folded(key: str, rows: int) -> str:
    return f"CAST(({key} - 1) % {rows} + 1 AS INTEGER)"


def lineorder_sql(lineitem: Path, orders: Path, scale_factor: float) -> str:
    """Join lines with their orders: the 17 columns of lineorder, in key order.

    Cents follow the generator's integer arithmetic: revenue is extended price * (100 - discount) // 100 and
    supply cost is 6 * unit price // 10, where the unit price is the extended price by the quantity.
    """
    price, percent = "CAST(l_extendedprice * 100 AS BIGINT)", "CAST(l_discount * 100 AS BIGINT)"
    quantity = "CAST(l_quantity AS BIGINT)"
    return f"""
    SELECT l_orderkey                                                  AS lo_orderkey,
           CAST(l_linenumber AS INTEGER)                               AS lo_linenumber,
           {_folded("o_custkey", customer_rows(scale_factor))}         AS lo_custkey,
           {_folded("l_partkey", part_rows(scale_factor))}             AS lo_partkey,
           {_folded("l_suppkey", supplier_rows(scale_factor))}         AS lo_suppkey,
           {_yyyymmdd("o_orderdate")}                                  AS lo_orderdate,
           o_orderpriority                                             AS lo_orderpriority,
           CAST(o_shippriority AS INTEGER)                             AS lo_shippriority,
           CAST({quantity} AS INTEGER)                                 AS lo_quantity,
           CAST({price} AS INTEGER)                                    AS lo_extendedprice,
           CAST(round(o_totalprice * 100) AS INTEGER)                  AS lo_ordtotalprice,
           CAST({percent} AS INTEGER)                                  AS lo_discount,
           CAST({price} * (100 - {percent}) // 100 AS INTEGER)         AS lo_revenue,
           CAST(6 * ({price} // {quantity}) // 10 AS INTEGER)          AS lo_supplycost,
           CAST(l_tax * 100 AS INTEGER)                                AS lo_tax,
           {_yyyymmdd("l_commitdate")}                                 AS lo_commitdate,
           l_shipmode                                                  AS lo_shipmode
    FROM read_parquet('{lineitem}') JOIN read_parquet('{orders}') ON l_orderkey = o_orderkey
    ORDER BY l_orderkey, l_linenumber"""


def _city(prefix: str) -> str:
    """Give SQL for a city: the first nine characters of the nation, blank-padded, and a digit."""
    padded = f"rpad(n_name, {CITY_PREFIX_CHARACTERS}, ' ')"
    return f"{padded} || {_draw(prefix + '_city', prefix + '_key', 10)}"


def customer_sql(tpch: Path, scale_factor: float) -> str:
    """Take the first customers of TPC-H, with city, nation and region by name."""
    return f"""
    SELECT c_key AS c_custkey, c_name, c_address, {_city("c")} AS c_city, n_name AS c_nation, r_name AS c_region,
           c_phone, c_mktsegment
    FROM (SELECT CAST(c_custkey AS INTEGER) AS c_key, * FROM read_parquet('{tpch}/customer.parquet'))
    JOIN read_parquet('{tpch}/nation.parquet') ON c_nationkey = n_nationkey
    JOIN read_parquet('{tpch}/region.parquet') ON n_regionkey = r_regionkey
    WHERE c_key <= {customer_rows(scale_factor)} ORDER BY c_key"""


def supplier_sql(tpch: Path, scale_factor: float) -> str:
    """Take the first suppliers of TPC-H, with city, nation and region by name."""
    return f"""
    SELECT s_key AS s_suppkey, s_name, s_address, {_city("s")} AS s_city, n_name AS s_nation, r_name AS s_region,
           s_phone
    FROM (SELECT CAST(s_suppkey AS INTEGER) AS s_key, * FROM read_parquet('{tpch}/supplier.parquet'))
    JOIN read_parquet('{tpch}/nation.parquet') ON s_nationkey = n_nationkey
    JOIN read_parquet('{tpch}/region.parquet') ON n_regionkey = r_regionkey
    WHERE s_key <= {supplier_rows(scale_factor)} ORDER BY s_key"""


def part_sql(tpch: Path, scale_factor: float) -> str:
    """Take the first parts of TPC-H: manufacturer and category from its brand `Brand#MN`, 40 brands in a category.

    The colour is the first word of TPC-H's name; SSB's shorter name is the two words after it.
    """
    category = "'MFGR#' || right(p_brand, 2)"
    brand = f"lpad(CAST(1 + {_draw('p_brand1', 'p_key', BRANDS_PER_CATEGORY)} AS VARCHAR), 2, '0')"
    return f"""
    SELECT p_key AS p_partkey,
           split_part(p_name, ' ', 2) || ' ' || split_part(p_name, ' ', 3) AS p_name,
           'MFGR#' || right(p_mfgr, 1) AS p_mfgr,
           {category} AS p_category,
           {category} || {brand} AS p_brand1,
           split_part(p_name, ' ', 1) AS p_color,
           p_type, CAST(p_size AS INTEGER) AS p_size, p_container
    FROM (SELECT CAST(p_partkey AS INTEGER) AS p_key, * FROM read_parquet('{tpch}/part.parquet'))
    WHERE p_key <= {part_rows(scale_factor)} ORDER BY p_key"""


def date_sql() -> str:
    """Make the 2,556 days from 1992-01-01 with the paper's 17 columns; weeks begin on Sunday, flags are 0 or 1.

    Seasons and the ten holidays are the generator's; names and week days are the calendar's.
    """
    return f"""
    SELECT {_yyyymmdd("day")} AS d_datekey, strftime(day, '%B %-d, %Y') AS d_date, dayname(day) AS d_dayofweek,
           monthname(day) AS d_month, CAST(year(day) AS INTEGER) AS d_year,
           CAST(year(day) * 100 + month(day) AS INTEGER) AS d_yearmonthnum, strftime(day, '%b%Y') AS d_yearmonth,
           CAST(dayofweek(day) + 1 AS INTEGER) AS d_daynuminweek, CAST(day(day) AS INTEGER) AS d_daynuminmonth,
           CAST(dayofyear(day) AS INTEGER) AS d_daynuminyear, CAST(month(day) AS INTEGER) AS d_monthnuminyear,
           CAST((dayofyear(day) - 1) // 7 + 1 AS INTEGER) AS d_weeknuminyear,
           CASE WHEN month(day) >= 11 THEN 'Christmas' WHEN month(day) >= 9 THEN 'Fall'
                WHEN month(day) >= 5 THEN 'Summer' WHEN month(day) = 4 THEN 'Spring' ELSE 'Winter'
           END AS d_sellingseason,
           CAST(dayofweek(day) = 6 AS INTEGER) AS d_lastdayinweekfl,
           CAST(day = last_day(day) AS INTEGER) AS d_lastdayinmonthfl,
           CAST(month(day) * 100 + day(day) IN ({", ".join(map(str, HOLIDAYS_MMDD))}) AS INTEGER) AS d_holidayfl,
           CAST(dayofweek(day) BETWEEN 1 AND 5 AS INTEGER) AS d_weekdayfl
    FROM (SELECT CAST(DATE '1992-01-01' + CAST(n AS INTEGER) AS DATE) AS day FROM range({DATE_DAYS}) AS days(n))
    ORDER BY day"""
