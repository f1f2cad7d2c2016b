import pathlib
from collections.abc import Iterator

import pytest
from server import Server, admin

from isobar_client import Isobar


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(pathlib.Path(tmp_path_factory.mktemp("isobar")))
    yield running
    running.kill()


@pytest.fixture
def isobar(server: Server) -> Iterator[Isobar]:
    with admin(server.url) as made:
        yield made
