"""SQL WHERE text, as Spark 4.1 users write it, becomes a condition over the columns of a schema.

pyparsing cuts the text into values and operators, which take turns. `precedence` beside nests them,
`planner.condition.comparisons` makes tests of them, and `planner.condition.truth` gives the nested conditions SQL's
three-valued meaning. Functions, arithmetic and comparisons of two columns are unknown, but for some patterns and
functions of one column, which are decided value by value. `planner.condition.literals` says which type a literal has.
"""

import re
from collections.abc import Callable
from datetime import UTC, tzinfo
from functools import cache
from typing import Final, cast

from pyiceberg.expressions.literals import BooleanLiteral, StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.typedef import LiteralValue
from pyparsing import (
    Empty,
    NoMatch,
    Opt,
    ParseBaseException,
    ParseException,
    ParseFatalException,
    ParserElement,
    Regex,
    Token as Terminal,
)

from planner.condition.comparisons import (
    Applied,
    Column,
    Computed,
    Value,
    nan_test,
    null_test,
    prefix_test,
)
from planner.condition.literals import (
    binary_literal,
    date_literal,
    number_literal,
    string_value,
    time_literal,
    timestamp_literal,
)
from planner.condition.sql.precedence import Columns, Kind, Token, read_condition
from planner.condition.tree.nodes import NumberFunction, Predicate, TextFunction, flattened
from planner.condition.truth import Truth
from puffin_index.errors import WhereSyntaxError

_FLAGS = re.IGNORECASE | re.DOTALL
# Atomic groups, not possessive quantifiers: Python before 3.11.5 reads possessive quantifiers of groups wrongly.
_RAW = r"""(?<!\w)r(?:'[^']*'|"[^"]*")"""
_STRING = rf"""(?:{_RAW}|'(?>(?:[^'\\]|\\.|'')*)'|"(?>(?:[^"\\]|\\.|"")*)")"""
_BACKTICKS = r"`(?:[^`]|``)+`"
_PART = rf"(?:{_BACKTICKS}|(?![0-9]+(?!\w))\w+)"
# Spark reserves no word at all. If these words could be names, most mistakes would parse.
_RESERVED = r"(?:AND|OR|NOT|IN|IS|LIKE|BETWEEN|NULL|TRUE|FALSE|SELECT|WHERE)\b"
_NAME = rf"(?:(?!{_RESERVED}){_PART}(?>(?:\s*\.\s*{_PART})*))"
# With a letter or digit right behind, the text is a name (1a) or nonsense (1.5L).
_NUMBER = r"(?>[0-9]+[lsy](?!\w)|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?(?:bd|[df])?)(?!\w)"
_CONSTANT = (
    rf"(?P<number>(?:[-+]\s*)?{_NUMBER})|(?P<word>TRUE|FALSE|NULL)\b"
    rf"|(?P<type>DATE|TIMESTAMP_NTZ|TIMESTAMP_LTZ|TIMESTAMP|TIME|INTERVAL|X)\s*(?P<quoted>{_STRING})"
    rf"|(?P<text>{_STRING}(?>(?:\s*{_STRING})*))"
)
_MEMBER = "(?:" + re.sub(r"\?P<\w+>", "?:", _CONSTANT) + ")"
_KEY = rf"\s*\[\s*(?P<key>{_MEMBER})\s*\]"
_UNIT = r"(?:(?:NANO|MICRO|MILLI)?SECOND|MINUTE|HOUR|DAY|WEEK|MONTH|YEAR)S?\b"
_INTERVAL = rf"INTERVAL(?>(?:\s*[-+]?\s*(?:{_STRING}|{_NUMBER})\s*{_UNIT}(?:\s+TO\s+{_UNIT})?)+)"
_CASE = r"CASE\b(?=\s*(?!(?:IN|IS|NOT|LIKE|BETWEEN|AND|OR)\b)[\w'\"`(])"
_CLOCK = r"(?:CURRENT_(?:DATE|TIMESTAMP|TIME)|LOCALTIMESTAMP)"
_FUNCTIONS: dict[str, TextFunction | NumberFunction] = {
    "upper": "upper",
    "ucase": "upper",
    "lower": "lower",
    "lcase": "lower",
    "trim": "trim",
    "ltrim": "ltrim",
    "rtrim": "rtrim",
    "length": "length",
    "char_length": "length",
    "character_length": "length",
    "year": "year",
    "month": "month",
    "day": "day",
    "dayofmonth": "day",
    "quarter": "quarter",
}
_TESTS: Final[dict[str, Callable[[Value, str], Truth]]] = {
    "isnan": nan_test,
    "isnull": null_test,
    "isnotnull": lambda value, text: ~null_test(value, text),
}
_TYPE_NAME = r"\w+(?:\s*\([0-9,\s]*\))?"
_MEMBERS = re.compile(_CONSTANT, _FLAGS)
_PARTS = re.compile(_PART, _FLAGS)
_BRACKETS = re.compile(rf"{_STRING}|{_BACKTICKS}|[()\[\]]|(?<![\w.])(?:CASE|END)(?!\w)", _FLAGS)
_CLOSING = {"(": ")", "[": "]", "CASE": "END"}
_BLANK = re.compile(
    rf"{_STRING}|{_BACKTICKS}|(?P<blank>--(?:\\\n|[^\r\n])*|[^\S \n\t\r]+)|(?P<comment>/\*(?!\+))", _FLAGS
)
# Python makes these of bytes that are not UTF-8, for instance on a command line.
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
_SYNONYMS = {"==": "=", "!=": "<>", "!<": ">=", "!>": "<="}
_COMMENT_END = re.compile(r"/\*|\*/")


def read_where(text: str, schema: Schema, zone: tzinfo = UTC) -> Predicate:
    """Read a WHERE clause, with or without the word, by the session's time zone: the rows for which it is true.

    Raises WhereSyntaxError if the text is no condition, a literal is outside of its type's range, or a character is
    half of a surrogate pair; NotFoundError if the schema lacks a column.
    """
    if half := _HALF_CHARACTER.search(text):
        raise WhereSyntaxError(text, half.start(), "text that has a form in UTF-8")
    blanked = _blank_comments(text)
    if not blanked.strip():
        raise WhereSyntaxError(text, len(text), "a condition")
    try:
        tokens: list[Token] = _grammar().parse_string(blanked).as_list()
        return flattened(read_condition(tokens, text, schema, zone).yes)
    except ParseBaseException as error:
        raise WhereSyntaxError(text, error.loc, error.msg.removeprefix("Expected ")) from error


def _blank_comments(text: str) -> str:
    """Replace comments and rare kinds of white space by as many blanks, so that all offsets stay."""
    pieces: list[str] = []
    position = 0
    while match := _BLANK.search(text, position):
        start, end = match.span()
        if match["comment"]:
            end = _comment_end(text, start)
        quoted = not (match["comment"] or match["blank"])
        pieces += [text[position:start], text[start:end] if quoted else " " * (end - start)]
        position = end
    return "".join([*pieces, text[position:]])


def _comment_end(text: str, start: int) -> int:
    depth = 0
    for match in _COMMENT_END.finditer(text, start):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    raise WhereSyntaxError(text, start, "a comment that ends")


@cache
def _grammar() -> ParserElement:
    """Build the grammar: a value, then operators; an operator between two values takes the next value along."""
    before = _tokens(rf"(?P<NOT>NOT\b|!)|(?P<OPEN>\()|(?P<SIGN>~|[-+](?!\s*{_NUMBER}))")
    operand = before[...] - _value()
    between = (
        _tokens(
            r"(?P<COMPARISON><=>|<>|<=(?!>)|>=|==|!=|!<|!>|=|<(?!<)|>(?!>))|(?P<AND>AND\b)|(?P<OR>OR\b)|(?P<COMMA>,)"
        )
        | _tokens(r"(?P<ARITHMETIC>\|\||<<|>>>?|[-+*/%&|^]|DIV\b)")
        | _tokens(r"(?P<not>NOT\s+)?(?:(?P<LIKE>LIKE|ILIKE|RLIKE|REGEXP)\b|(?P<BETWEEN>BETWEEN)\b|(?P<IN>IN)\s*\()")
        | _tokens(r"IS\s+(?P<not>NOT\s+)?(?P<DISTINCT>DISTINCT\s+FROM)\b")
    )
    behind = (
        _tokens(rf"(?P<CLOSE>\))|(?P<ACCESS>::\s*{_TYPE_NAME}|COLLATE\s+\w+|\.\s*{_PART})")
        | _lexeme(rf"(?P<not>NOT\s+)?IN\s*\((?P<members>\s*{_MEMBER}(?>(?:\s*,\s*{_MEMBER})*))\s*\)", _literal_list)
        | _tokens(r"IS\s+(?P<not>NOT\s+)?(?P<IS>NULL|NAN|TRUE|FALSE|UNKNOWN)\b")
        | _lexeme(rf"ESCAPE\s*(?P<text>{_STRING})", _escape)
        | _Region(r"\[", "ACCESS")
    )
    # Reached only where none of the above fits: they say what is missing.
    unfinished = (
        Regex(r"IS(?:\s+NOT)?\b", _FLAGS) - NoMatch().set_name("NULL, NAN, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
        | Regex(r"(?:NOT\s+)?IN\b", _FLAGS) - NoMatch().set_name("'('")
        | Regex(r"NOT\b", _FLAGS) - NoMatch().set_name("IN, BETWEEN or LIKE")
        | Regex(r"ESCAPE\b", _FLAGS) - NoMatch().set_name("one character in quotes")
    )
    end = Empty().set_parse_action(lambda _, offset, __: Token("END", offset, offset))
    where = Regex(r"WHERE\b", _FLAGS).suppress()
    grammar: ParserElement = Opt(where) + operand + (behind | between - operand | unfinished)[...] + end
    # Tabs count as one character, as in the text.
    return grammar.parse_with_tabs()


def _value() -> ParserElement:
    column = rf"(?P<name>{_NAME})(?:{_KEY})?"
    text = rf"(?P<text>{_STRING}(?>(?:\s*{_STRING})*))"
    called = "|".join([*_TESTS, *_FUNCTIONS])
    return (
        _operand(rf"(?P<computed>{_INTERVAL}|{_CLOCK}\b(?!\s*\())|{_CONSTANT}", _constant)
        | _operand(rf"(?!{_CASE})(?P<name>(?>{_NAME}))(?!\s*\()(?:{_KEY})?", _column)
        | _operand(rf"(?:try_)?element_at\s*\(\s*(?P<name>{_NAME})\s*,\s*(?P<key>{_MEMBER})\s*\)", _column)
        | _operand(rf"(?P<function>{called})\s*\(\s*(?!{_CLOCK}\b){column}\s*\)", _call)
        | _operand(rf"(?:startswith|starts_with)\s*\(\s*{column}\s*,\s*{text}\s*\)", _prefix_test)
        | _Region(_CASE, "VALUE")
        | _Region(rf"{_NAME}\s*\(", "VALUE")
        | Regex(r"(?=r?['\"]|`)", _FLAGS) - NoMatch().set_name("a closing quote")
    ).set_name("a value")


class _Region(Terminal):
    """All from an opening bracket (or CASE) to the one that closes it, skipped however deeply it nests."""

    def __init__(self, opening: str, kind: Kind) -> None:
        super().__init__()
        self.opening = re.compile(opening, _FLAGS)
        self.kind = kind

    def _generateDefaultName(self) -> str:  # noqa: N802 # pyparsing's hook
        return self.opening.pattern

    def parseImpl(  # noqa: N802 # pyparsing's hook
        self,
        instring: str,
        loc: int,
        do_actions: bool = True,  # noqa: ARG002 # pyparsing's signature
    ) -> tuple[int, list[Token]]:
        """Match at an offset: pyparsing's hook for terminals."""
        opening = self.opening.match(instring, loc)
        if opening is None:
            raise ParseException(instring, loc, self.errmsg, self)
        end = _region_end(instring, loc)
        return end, [Token(self.kind, loc, end)]


def _region_end(text: str, start: int) -> int:
    awaited: list[str] = []
    for match in _BRACKETS.finditer(text, start):
        word = match[0].upper()
        if word in _CLOSING:
            awaited.append(_CLOSING[word])
        elif word == awaited[-1]:
            awaited.pop()
            if not awaited:
                return match.end()
        elif word in (")", "]"):
            raise ParseFatalException(text, match.start(), f"Expected {awaited[-1]!r}")
    raise ParseFatalException(text, len(text), f"Expected {awaited[-1]!r}")


def _lexeme(pattern: str, make: Callable[[re.Match[str]], Token]) -> ParserElement:
    return Regex(pattern, _FLAGS, as_match=True).set_parse_action(lambda _, __, found: make(found[0]))


def _tokens(pattern: str) -> ParserElement:
    """Match a pattern whose named groups are kinds; a group `not` says that it is negated."""

    def make(match: re.Match[str]) -> Token:
        kind = match.lastgroup
        assert kind is not None, "each alternative has its kind"
        word = match[kind].upper()
        negated = match.groupdict().get("not") is not None
        return Token(cast(Kind, kind), match.start(), match.end(), _SYNONYMS.get(word, word), negated)

    return _lexeme(pattern, make)


def _operand(pattern: str, value: Callable[[re.Match[str], Columns], Value]) -> ParserElement:
    """Match a value, which `value` makes once the text is cut."""
    return _lexeme(
        pattern,
        lambda match: Token("VALUE", match.start(), match.end(), values=lambda columns: (value(match, columns),)),
    )


def _literal_list(match: re.Match[str]) -> Token:
    def members(columns: Columns) -> list[Value]:
        return [_constant(member, columns) for member in _MEMBERS.finditer(match.string, *match.span("members"))]

    return Token("IN_LIST", match.start(), match.end(), negated=match["not"] is not None, values=members)


def _escape(match: re.Match[str]) -> Token:
    return Token("ESCAPE", match.start(), match.end(), _text(match))


def _column(match: re.Match[str], columns: Columns) -> Column | Computed:
    name = _column_name(match["name"])
    if match["key"] is None:
        return columns.find(name)
    constant = _MEMBERS.match(match.string, match.start("key"))
    assert constant is not None, "it matched as a part"
    key = _constant(constant, columns)
    return Computed() if key is None or isinstance(key, Computed) else columns.find(name, key)


def _call(match: re.Match[str], columns: Columns) -> Value:
    function, column = match["function"].lower(), _column(match, columns)
    if function in _TESTS:
        return _TESTS[function](column, match[0])
    return Applied(_FUNCTIONS[function], column) if isinstance(column, Column) else column


def _prefix_test(match: re.Match[str], columns: Columns) -> Truth:
    return prefix_test(_column(match, columns), StringLiteral(_text(match)), match[0])


def _column_name(text: str) -> str:
    parts = (part[1:-1].replace("``", "`") if part[0] == "`" else part for part in _PARTS.findall(text))
    return ".".join(parts)


def _text(match: re.Match[str]) -> str:
    try:
        return string_value(match["text"])
    except ValueError as error:
        raise ParseFatalException(match.string, match.start("text"), f"Expected {error}") from error


def _constant(match: re.Match[str], columns: Columns) -> LiteralValue | Computed | None:
    """Make the value of a literal that `_CONSTANT` matched; None is NULL."""
    try:
        match match.lastgroup:
            case "computed":
                return Computed()
            case "number":
                return number_literal("".join(match["number"].split()))
            case "word":
                word = match["word"].upper()
                return None if word == "NULL" else BooleanLiteral(word == "TRUE")
            case "text":
                return StringLiteral(string_value(match["text"]))
            case _:
                return _typed_constant(match["type"].upper(), string_value(match["quoted"]), columns.zone)
    except ValueError as error:
        raise ParseFatalException(match.string, match.start(match.lastgroup or 0), f"Expected {error}") from error


def _typed_constant(type_name: str, text: str, zone: tzinfo) -> LiteralValue | Computed:
    literal: LiteralValue | None = None
    match type_name:
        case "X":
            literal = binary_literal(text)
        case "DATE":
            literal = date_literal(text)
        case "TIME":
            literal = time_literal(text)
        case "TIMESTAMP" | "TIMESTAMP_NTZ" | "TIMESTAMP_LTZ":
            literal = timestamp_literal(type_name, text, zone)
    return Computed() if literal is None else literal
