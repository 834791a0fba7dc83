"""Random conditions that only Spark can evaluate."""

from random import Random


class RandomCondition:
    """Random conditions on the columns of `every_type`."""

    _COLUMNS = ("small", "large", "single", "double", "money", "middle", "wide", "day", "local", "moment", "word")
    _COLUMNS += ("flag", "bytes", "code", "inner.leaf", "inner.deep.word", "tags['color']")
    _NUMBERS = ("small", "inner.leaf", "money", "double", "single", "middle")

    def __init__(self, random: Random) -> None:
        self._random = random

    def condition(self, depth: int = 2) -> str:
        """One condition, of up to four that stand under AND, OR and NOT."""
        random = self._random
        if depth and random.random() < 0.4:
            first, second = self.condition(depth - 1), self.condition(depth - 1)
            return random.choice([f"({first} AND {second})", f"({first} OR {second})", f"NOT ({first})"])
        return random.choice([self._text, self._number, self._time, self._nulls, self._known])()

    def _text(self) -> str:
        column, digit = self._random.choice(self._COLUMNS), self._random.randrange(10)
        text = f"CAST({column} AS STRING)"
        if column in ("bytes", "code"):
            text = f"hex({column})"
        return self._random.choice(
            [
                f"{text} LIKE '%{digit}_'",
                f"{text} RLIKE '{digit}{{2}}'",
                f"reverse({text}) < '{digit}'",
                f"length({text}) = {digit}",
                f"substring({text}, 2, 2) IN ('{digit}0', '1{digit}', '{digit}5')",
                f"upper({text}) = lower({text})",
                f"crc32({text}) % 97 = {digit}",
                f"md5({text}) < '{digit}'",
            ]
        )

    def _number(self) -> str:
        column, number = self._random.choice(self._NUMBERS), self._random.randrange(-400, 400)
        return self._random.choice(
            [
                f"{column} + {number} = {number * 2}",
                f"{column} * 2 BETWEEN {number} AND {number + 20}",
                f"abs({column}) < {number}",
                f"pmod({column}, 97) = {number % 97}",
                f"floor({column} / 10) = {number // 10}",
                f"round({column}, -1) = {number // 10 * 10}",
                f"CASE WHEN {column} < {number} THEN {column} ELSE NULL END > {number - 30}",
                f"signum({column}) = {number % 3 - 1}",
                f"-{column} >= {number + 380}",
                f"greatest({column}, {number}) = {number}",
            ]
        )

    def _time(self) -> str:
        column, number = self._random.choice(("day", "local", "moment")), self._random.randrange(12)
        return self._random.choice(
            [
                f"year({column}) = {1968 + number}",
                f"month({column}) = {number + 1} AND dayofmonth({column}) = 5",
                f"date_add({column}, {number}) = DATE '1970-03-0{number % 9 + 1}'",
                f"CAST({column} AS DATE) = DATE '1970-01-{number + 10}'",
                f"date_trunc('YEAR', {column}) = TIMESTAMP '197{number % 10}-01-01 00:00:00'",
                f"dayofweek({column}) = {number % 8}",
                f"weekofyear({column}) = {number * 4}",
                f"last_day({column}) = DATE '1970-01-31'",
            ]
        )

    def _nulls(self) -> str:
        column = self._random.choice(self._NUMBERS)
        return self._random.choice(
            [
                f"coalesce({column}, 3) = 3",
                f"nullif({column}, 5) IS NULL",
                f"({column} + 1 > 10) IS NOT TRUE",
                f"nvl2({column}, 0, 1) = 1",
                f"isnotnull({column} % 5) AND {column} % 5 = 4",
            ]
        )

    def _known(self) -> str:
        column, number = self._random.choice(("small", "inner.leaf")), self._random.randrange(-400, 900)
        return self._random.choice([f"{column} = {number}", f"{column} < {number}", f"{column} IS NULL"])


def random_monotone(random: Random, column: str) -> str:
    """A random comparison of functions that may be monotone on all or on a part of the column's values."""
    text = column
    for _ in range(random.choice((1, 1, 2, 3))):
        number = random.choice((-3, -1, 2, 7, 1000, 10**9))
        steps = [f"({text} + {number})", f"({number} - {text})", f"(-{text})", f"({text} * {number})"]
        steps += [f"({text} / {number})", f"floor({text})", f"round({text}, -1)", f"CAST({text} AS DOUBLE)"]
        steps += [f"CAST({text} AS INT)", f"CAST({text} AS DECIMAL(20, 1))", f"abs({text})"]
        if column in ("t", "n"):
            steps = [f"date_trunc('{random.choice(('DAY', 'MONTH', 'HOUR'))}', {text})", f"CAST({text} AS DATE)"]
            steps += [f"date_add({text}, {number % 99})", f"last_day({text})", f"add_months({text}, {number % 9})"]
        text = random.choice(steps)
    operator = random.choice(("=", "=", "<", "<=", ">", ">="))
    if column in ("t", "n"):
        year = 2018 if column == "t" else 1969
        return f"{text} {operator} DATE '{year + random.randrange(3)}-{random.randrange(1, 13):02}-04'"
    return f"{text} {operator} {random.choice((0, 1, -5, 357913 * 4, 3141, random.randrange(-(10**6), 10**6)))}"
