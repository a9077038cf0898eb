"""Fixtures of the tests of remote stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import object_store

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def server() -> Iterator[object_store.ObjectStore]:
    """Return an S3 server for all tests."""
    with object_store.serve() as running:
        yield running
