"""SQL WHERE text, as Spark 4.1 users write it, becomes a condition over the columns of a schema.

Regular expressions cut the text into values and operators, which take turns. `precedence` beside nests them,
`planner.condition.comparisons` makes tests of them, and `planner.condition.truth` gives the nested conditions SQL's
three-valued meaning. Functions, arithmetic and comparisons of two columns are unknown, but for some patterns and
functions of one column, which are decided value by value. `planner.condition.literals` says which type a literal has.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, tzinfo
from typing import Final, TypeAlias, cast, get_args

from pyiceberg.schema import Schema

from planner.condition import comparisons, literals
from planner.condition.columns import ONLY_SPARK_KNOWS_INSTANT, FoundColumn
from planner.condition.sql.precedence import ENDS_VALUE, Columns, Kind, Token, read_condition
from planner.condition.tree.nodes import NumberFunction, Predicate, TextFunction, flattened
from planner.condition.truth import Truth
from puffin_index.errors import WhereSyntaxError
from puffin_index.keys.map_key import Part

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
_FUNCTIONS: Final[dict[str, TextFunction | NumberFunction]] = {
    **{name: name for name in (*get_args(TextFunction), *get_args(NumberFunction))},
    "ucase": "upper",
    "lcase": "lower",
    "char_length": "length",
    "character_length": "length",
    "dayofmonth": "day",
}
_TESTS: Final[dict[str, Callable[[comparisons.Value, str], Truth]]] = {
    "isnan": comparisons.nan_test,
    "isnull": comparisons.null_test,
    "isnotnull": lambda value, text: ~comparisons.null_test(value, text),
}
_WITHOUT_LITERAL: Final = {
    "INTERVAL": comparisons.ARITHMETIC,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), comparisons.Computed(ONLY_SPARK_KNOWS_INSTANT)),
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
_SPACE = re.compile(r"[ \n\t\r]+")
_WHERE = re.compile(r"WHERE\b", _FLAGS)


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
        return flattened(read_condition([*_tokens(blanked)], text, schema, zone).yes)
    except WhereSyntaxError as error:
        # Tokens have the text without its comments.
        raise WhereSyntaxError(text, error.position, error.expected) from error


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


Rule: TypeAlias = tuple[re.Pattern[str], Callable[[re.Match[str]], Token]]
"""A pattern, and what makes a token of its match."""


def _tokens(text: str) -> Iterator[Token]:
    """Cut a text: a value, then operators; an operator between two values takes the next value along."""
    wants_value, place = True, _skip(_WHERE, text, _skip(_SPACE, text, 0))
    while True:
        place = _skip(_SPACE, text, place)
        rules = _BEFORE_VALUES if wants_value else _BEHIND_VALUES
        token = next((make(match) for pattern, make in rules if (match := pattern.match(text, place))), None)
        if token is None:
            break
        yield token
        wants_value, place = token.kind not in ENDS_VALUE, token.end
    if wants_value:
        raise WhereSyntaxError(text, place, "a value")
    yield Token("END", place, place)


def _skip(pattern: re.Pattern[str], text: str, place: int) -> int:
    match = pattern.match(text, place)
    return match.end() if match else place


def _region(opening: re.Match[str]) -> Token:
    """All from an opening bracket (or CASE) to the one that closes it, skipped however deeply it nests."""
    name, text = opening["function"], opening.string
    value = comparisons.call(name) if name else comparisons.ARITHMETIC
    awaited = [_CLOSING.get(opening[0][-1], "END")]
    for match in _BRACKETS.finditer(text, opening.end()):
        word = match[0].upper()
        if word in _CLOSING:
            awaited.append(_CLOSING[word])
        elif word == awaited[-1]:
            awaited.pop()
            if not awaited:
                return Token("VALUE", opening.start(), match.end(), values=lambda _: (value,))
        elif word in (")", "]"):
            raise WhereSyntaxError(text, match.start(), f"{awaited[-1]!r}")
    raise WhereSyntaxError(text, len(text), f"{awaited[-1]!r}")


def _rule(pattern: str, make: Callable[[re.Match[str]], Token]) -> Rule:
    return re.compile(pattern, _FLAGS), make


def _kinds(pattern: str) -> Rule:
    """Match a pattern whose named groups are kinds; a group `not` says that it is negated."""

    def make(match: re.Match[str]) -> Token:
        kind = match.lastgroup
        assert kind is not None, "each alternative has its kind"
        word = match[kind].upper()
        negated = match.groupdict().get("not") is not None
        return Token(cast(Kind, kind), match.start(), match.end(), _SYNONYMS.get(word, word), negated)

    return _rule(pattern, make)


def _value(pattern: str, value: Callable[[re.Match[str], Columns], comparisons.Value]) -> Rule:
    """Match a value, which `value` makes once the text is cut."""
    return _rule(
        pattern,
        lambda match: Token("VALUE", match.start(), match.end(), values=lambda columns: (value(match, columns),)),
    )


def _unfinished(pattern: str, expected: str) -> Rule:
    """Say what is missing behind a pattern; it is tried where nothing else fits."""

    def fail(match: re.Match[str]) -> Token:
        raise WhereSyntaxError(match.string, match.end(), expected)

    return _rule(rf"{pattern}\s*", fail)


def _literal_list(match: re.Match[str]) -> Token:
    def members(columns: Columns) -> list[comparisons.Value]:
        return [_constant(member, columns) for member in _MEMBERS.finditer(match.string, *match.span("members"))]

    return Token("IN_LIST", match.start(), match.end(), negated=match["not"] is not None, values=members)


def _column(match: re.Match[str], columns: Columns) -> FoundColumn | comparisons.Computed:
    name = _name(match)
    if match["key"] is None:
        return columns.find(name)
    constant = _MEMBERS.match(match.string, match.start("key"))
    assert constant is not None, "it matched as a part"
    key = _constant(constant, columns)
    return comparisons.Computed() if key is None or isinstance(key, comparisons.Computed) else columns.find(name, key)


def _name(match: re.Match[str]) -> str:
    parts = (part[1:-1].replace("``", "`") if part[0] == "`" else part for part in _PARTS.findall(match["name"]))
    return ".".join(parts)


def _call(match: re.Match[str], columns: Columns) -> comparisons.Value:
    function, column = match["function"].lower(), _column(match, columns)
    if function in ("startswith", "starts_with"):
        return comparisons.prefix_test(column, literals.text_literal(_text(match)), match[0])
    if function in ("contains", "endswith", "ends_with"):
        letters = comparisons.without_wildcards(_text(match))
        pattern = literals.text_literal(f"%{letters}{'%' if function == 'contains' else ''}")
        return comparisons.like(column, "LIKE", pattern, "\\", match[0])
    if function in _TESTS:
        return _TESTS[function](column, match[0])
    return comparisons.Applied(_FUNCTIONS[function], column) if isinstance(column, FoundColumn) else column


def _empty(match: re.Match[str], columns: Columns) -> comparisons.Value:
    return comparisons.is_empty(columns.find(_name(match)), match[0])


def _contents(match: re.Match[str], columns: Columns) -> comparisons.Value:
    """Make a test of what a column contains."""
    column = columns.find(_name(match))
    part: Part = "keys" if match["function"].lower() == "map_contains_key" else "elements"
    if match["part"]:
        part = "keys" if match["part"].lower() == "keys" else "values"
    members = [_constant(member, columns) for member in _MEMBERS.finditer(match.string, *match.span("members"))]
    return comparisons.contains(column, part, members, match[0])


def _text(match: re.Match[str]) -> str:
    try:
        return literals.string_value(match["text"])
    except ValueError as error:
        raise WhereSyntaxError(match.string, match.start("text"), str(error)) from error


def _constant(match: re.Match[str], columns: Columns) -> literals.Literal | comparisons.Computed | None:
    """Make the value of a literal that `_CONSTANT` matched; None is NULL."""
    try:
        match match.lastgroup:
            case "computed":
                return comparisons.ARITHMETIC
            case "number":
                return literals.number_literal("".join(match["number"].split()))
            case "word":
                word = match["word"].upper()
                return None if word == "NULL" else literals.Literal("boolean", word == "TRUE")
            case "text":
                return literals.text_literal(literals.string_value(match["text"]))
            case _:
                return _typed_constant(match["type"].upper(), literals.string_value(match["quoted"]), columns.zone)
    except ValueError as error:
        raise WhereSyntaxError(match.string, match.start(match.lastgroup or 0), str(error)) from error


def _typed_constant(type_name: str, text: str, zone: tzinfo) -> literals.Literal | comparisons.Computed:
    literal: literals.Literal | None = None
    match type_name:
        case "X":
            literal = literals.binary_literal(text)
        case "DATE":
            literal = literals.date_literal(text)
        case "TIME":
            literal = literals.time_literal(text)
        case "TIMESTAMP" | "TIMESTAMP_NTZ" | "TIMESTAMP_LTZ":
            literal = literals.timestamp_literal(type_name, text, zone)
    return _WITHOUT_LITERAL.get(type_name, comparisons.Computed()) if literal is None else literal


_SEARCH = "startswith|starts_with|contains|endswith|ends_with"
_TEXT = rf"(?P<text>{_STRING}(?>(?:\s*{_STRING})*))"
_COLUMN = rf"(?P<name>{_NAME})(?:{_KEY})?"
_LISTS = rf"(?:map_(?P<part>keys|values)\s*\(\s*)?(?P<name>{_NAME})\s*(?(part)\)\s*)"
_LIST_OF_MEMBERS = rf"(?P<members>\s*{_MEMBER}(?>(?:\s*,\s*{_MEMBER})*))\s*"
_BEFORE_VALUES: Final = (
    _kinds(rf"(?P<NOT>NOT\b|!)|(?P<OPEN>\()|(?P<SIGN>~|[-+](?!\s*{_NUMBER}))"),
    _value(rf"(?P<computed>{_INTERVAL}|{_CLOCK}\b(?!\s*\())|{_CONSTANT}", _constant),
    _value(rf"(?!{_CASE})(?P<name>(?>{_NAME}))(?!\s*\()(?:{_KEY})?", _column),
    _value(rf"(?:try_)?element_at\s*\(\s*(?P<name>{_NAME})\s*,\s*(?P<key>{_MEMBER})\s*\)", _column),
    _value(rf"(?P<function>{'|'.join([*_TESTS, *_FUNCTIONS])})\s*\(\s*(?!{_CLOCK}\b){_COLUMN}\s*\)", _call),
    _value(rf"(?P<function>{_SEARCH})\s*\(\s*{_COLUMN}\s*,\s*{_TEXT}\s*\)", _call),
    _value(rf"(?P<function>array_contains|map_contains_key)\s*\(\s*{_LISTS},\s*(?P<members>{_MEMBER})\s*\)", _contents),
    _value(rf"(?P<function>arrays_overlap)\s*\(\s*{_LISTS},\s*array\s*\({_LIST_OF_MEMBERS}\)\s*\)", _contents),
    _value(rf"(?:size|cardinality)\s*\(\s*(?P<name>{_NAME})\s*\)\s*={{1,2}}\s*0(?![\w.])", _empty),
    _rule(rf"{_CASE}|(?P<function>{_NAME})\s*\(", _region),
    _unfinished(r"(?=r?['\"]|`)", "a closing quote"),
)
_BEHIND_VALUES: Final = (
    _kinds(rf"(?P<CLOSE>\))|(?P<ACCESS>::\s*{_TYPE_NAME}|COLLATE\s+\w+|\.\s*{_PART})"),
    _rule(rf"(?P<not>NOT\s+)?IN\s*\({_LIST_OF_MEMBERS}\)", _literal_list),
    _kinds(r"IS\s+(?P<not>NOT\s+)?(?P<IS>NULL|NAN|TRUE|FALSE|UNKNOWN)\b"),
    _rule(rf"ESCAPE\s*(?P<text>{_STRING})", lambda match: Token("ESCAPE", match.start(), match.end(), _text(match))),
    _rule(r"(?P<function>)\[", lambda opening: replace(_region(opening), kind="ACCESS")),
    _kinds(r"(?P<COMPARISON><=>|<>|<=(?!>)|>=|==|!=|!<|!>|=|<(?!<)|>(?!>))|(?P<AND>AND\b)|(?P<OR>OR\b)|(?P<COMMA>,)"),
    _kinds(r"(?P<ARITHMETIC>\|\||<<|>>>?|[-+*/%&|^]|DIV\b)"),
    _kinds(r"(?P<not>NOT\s+)?(?:(?P<LIKE>LIKE|ILIKE|RLIKE|REGEXP)\b|(?P<BETWEEN>BETWEEN)\b|(?P<IN>IN)\s*\()"),
    _kinds(r"IS\s+(?P<not>NOT\s+)?(?P<DISTINCT>DISTINCT\s+FROM)\b"),
    _unfinished(r"IS(?:\s+NOT)?\b", "NULL, NAN, TRUE, FALSE, UNKNOWN or DISTINCT FROM"),
    _unfinished(r"(?:NOT\s+)?IN\b", "'('"),
    _unfinished(r"NOT\b", "IN, BETWEEN or LIKE"),
    _unfinished(r"ESCAPE\b", "one character in quotes"),
)
