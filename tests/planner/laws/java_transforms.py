"""Iceberg's partition transforms as its Java classes compute them: with ints that wrap around, and a slip before 1970.

Written apart from the planner, value by value. `tests/spark/answers/test_partitions.py` asks the classes themselves.
"""

from typing import Any

from pyiceberg import transforms
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

TIMES = (transforms.YearTransform, transforms.MonthTransform, transforms.DayTransform, transforms.HourTransform)


def written_values(transform: transforms.Transform[Any, Any], source: IcebergType, value: Any) -> set[Any]:
    """Return what writers make of a value: Java's classes, and of times those of long ago and PyIceberg."""
    written = {java_value(transform, source, value)}
    if isinstance(transform, TIMES):
        second = 0 if isinstance(source, DateType) else 10**6 if _has_micros(source) else 10**9
        day = 86_400 * second or 1
        exact = _between(transform, value // day, value % day, day)
        # The ones rounded towards 1970; the other wraps nothing around, and has no years beyond 262,142.
        written |= {_wrapped(exact, 32) if second else exact, None}
        if isinstance(transform, transforms.HourTransform):
            written.add(value // (3_600 * second))
    return written


def java_value(transform: transforms.Transform[Any, Any], source: IcebergType, value: Any) -> Any:
    """Return the partition value of a value, which is a whole number where PyIceberg's literals have one."""
    match transform, source:
        case transforms.IdentityTransform(), StringType():
            return _java_text(value)
        case transforms.IdentityTransform(), _:
            return value
        case transforms.BucketTransform(), StringType():
            return transform.transform(source)(_java_text(value))
        case transforms.BucketTransform(), _:
            return transform.transform(source)(value)
        case transforms.TruncateTransform(width=width), IntegerType():
            return _wrapped(value - _rest(_wrapped(_rest(value, width) + width, 32), width), 32)
        case transforms.TruncateTransform(width=width), LongType():
            return _wrapped(value - _rest(_rest(value, width) + width, width), 64)
        case transforms.TruncateTransform(), DecimalType():
            return transform.transform(source)(value)
        case transforms.TruncateTransform(width=width), StringType():
            return _java_text(value)[:width]
        case transforms.TruncateTransform(width=width), _:
            return value[:width]
        case _, DateType():
            return _period_of_days(transform, value)
        case _:
            return _period_of_time(transform, value, 10**6 if _has_micros(source) else 10**9)


def _has_micros(source: IcebergType) -> bool:
    return isinstance(source, TimestampType | TimestamptzType)


def _java_text(value: bytes) -> str:
    return value.decode(errors="replace")


def _rest(value: int, width: int) -> int:
    """Java's `%`, which has the sign of the left side."""
    return abs(value) % width * (1 if value >= 0 else -1)


def _wrapped(value: int, bits: int) -> int:
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def _period_of_days(transform: transforms.Transform[Any, Any], days: int) -> int:
    """`DateTimeUtil.convertDays`."""
    if isinstance(transform, transforms.DayTransform):
        return days
    return _between(transform, days, 0, 1) if days >= 0 else _between(transform, days + 1, 0, 1) - 1


def _period_of_time(transform: transforms.Transform[Any, Any], value: int, second: int) -> int:
    """`DateTimeUtil.convertMicros` and `convertNanos`: below zero, 1 is added to the fraction, without a carry."""
    seconds, fraction = divmod(value, second)
    if value < 0:
        fraction = (value + 1) % second
    days, rest = divmod(seconds * second + fraction, 86_400 * second)
    return _wrapped(_between(transform, days, rest, 86_400 * second) - (value < 0), 32)


def _between(transform: transforms.Transform[Any, Any], days: int, rest: int, day: int) -> int:
    """Whole units from the epoch to a part of a day, rounded towards the epoch as `ChronoUnit.between` does."""
    match transform:
        case transforms.HourTransform():
            whole, more = divmod(days * day + rest, day // 24)
        case transforms.DayTransform():
            whole, more = days, rest
        case _:
            year, month, of_month = _civil(days)
            whole, more = (year - 1970) * 12 + month - 1, (of_month - 1) * day + rest
            if not isinstance(transform, transforms.MonthTransform):
                whole, months = divmod(whole, 12)
                more += months
    return whole + (1 if whole < 0 and more else 0)


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970: eras of 400 years, which begin in March."""
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    return (
        era * 400 + year + (month > 9),
        month + 3 if month < 10 else month - 9,
        of_year - (153 * month + 2) // 5 + 1,
    )
