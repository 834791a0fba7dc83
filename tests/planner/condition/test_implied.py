"""What a query implies, for people and as JSON; what finding it costs."""

import json

from planner.condition.implied import Implied
from puffin_index.display import as_json


def test_an_implied_predicate_says_what_is_known_of_it() -> None:
    bare = Implied("join", "i in 3 keys")
    known = Implied("top-k", "order by i limit 3: 3 rows are <= 7", 12, 0.0015, 77)

    assert str(bare) == "join: i in 3 keys"
    assert str(known) == (
        "top-k: order by i limit 3: 3 rows are <= 7; drops 12 row groups that nothing else drops; "
        "found in 1.5 ms with 77 bytes read"
    )
    assert json.loads(json.dumps(as_json(known))) == {
        "source": "top-k",
        "text": "order by i limit 3: 3 rows are <= 7",
        "dropped": 12,
        "seconds": 0.0015,
        "bytes_read": 77,
    }
