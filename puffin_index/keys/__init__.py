"""Values as keys: value types, columns of sorted keys, and tests of keys at the leaves of predicates."""
