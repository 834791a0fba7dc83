"""Paimon's own classes in a JVM of this process, for all tests that have Paimon as their referee."""

import pytest

from tests.paimon.referee import Paimon, start_paimon


@pytest.fixture(scope="session")
def paimon() -> Paimon:
    """Paimon's index writers and readers. The jar is downloaded once a user."""
    return start_paimon()
