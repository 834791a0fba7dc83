"""Values as keys: value types, columns of sorted keys, and the tests that leaves of predicates ask of keys."""
