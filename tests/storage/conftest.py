"""Servers of the tests; see `make test-storage`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import azure_server
import hdfs_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[azure_server.Azure]:
    """Return a running server."""
    with azure_server.serve(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hdfs_server.Hdfs]:
    """Return a running HDFS."""
    with hdfs_server.serve(tmp_path_factory.mktemp("hdfs")) as server:
        yield server
