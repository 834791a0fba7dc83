"""The five SSB tables as DuckDB queries over TPC-H Parquet files, by the rules of the SSB paper and its data generator.

SSB (O'Neil, O'Neil, Chen, Revilak: Star Schema Benchmark, revision 3) is TPC-H reshaped: `lineorder` is lineitem joined
with orders, prices are whole cents, `partsupp` is gone, customer and supplier are smaller, part grows with log2 of the
scale factor, and `date` is a table. TPC-H keys are folded onto the smaller tables by modulo. Where the generator draws
a random number that TPC-H does not have, the MD5 of the key stands for it, so a scale factor gives one set of rows.
Keys, dates (yyyymmdd) and cents are INTEGER, but for the order key (BIGINT: its keys are sparse and outgrow 32 bits).
"""

import math
from importlib.resources import files
from string import Template
from typing import Final

DATE_DAYS: Final = 2556
# TPC-H rounds its small tables down to whole rows; a floor of one keeps every foreign key valid at tiny scales.
_CUSTOMERS_PER_SCALE: Final = 30_000
_SUPPLIERS_PER_SCALE: Final = 2_000
_PARTS_BASE: Final = 200_000


def part_rows(scale_factor: float) -> int:
    """Count the parts: 200,000 * floor(1 + log2 SF), and in proportion below scale 1, where the rule has no value."""
    if scale_factor >= 1:
        return _PARTS_BASE * math.floor(1 + math.log2(scale_factor))
    return max(1, int(_PARTS_BASE * scale_factor))


def dimension_rows(scale_factor: float) -> dict[str, int]:
    """Count the rows of each table but lineorder."""
    customers, suppliers = (max(1, int(each * scale_factor)) for each in (_CUSTOMERS_PER_SCALE, _SUPPLIERS_PER_SCALE))
    return {"customer": customers, "supplier": suppliers, "part": part_rows(scale_factor), "date": DATE_DAYS}


def table_sql(table: str, scale_factor: float, **sources: object) -> str:
    """Give the query of a table; `sources` are the paths that its file names."""
    rows = {f"{name}s": count for name, count in dimension_rows(scale_factor).items()} | {"days": DATE_DAYS}
    text = files("ssb_bench.data").joinpath("sql", f"{table}.sql").read_text(encoding="utf-8")
    return Template(text).substitute(rows, **sources)
