"""A server of its own for the tests, and servers that misbehave."""

import contextlib
import http.server
import os
import pathlib
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

from isobar_client import Isobar, Limits, done
from isobar_client.v2.api.devices import device_create
from isobar_client.v2.api.projects import project_create
from isobar_client.v2.models import DeviceInput, NewDevice, ProjectInput

ADMIN = "admin"
PASSWORD = "keep-it-cold-5"
READY = "Isobar is ready: "
START_SECONDS = 60


class Server:
    """The program that ISOBAR names, with a data folder of its own."""

    def __init__(self, folder: pathlib.Path, **settings: str) -> None:
        self.folder = folder
        self.url = "http://127.0.0.1:0"
        self.start(**settings)

    def start(self, **settings: str) -> None:
        """Starts it, on the address and with the data that it had before."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ISOBAR")}
        address = self.url.removeprefix("http://")
        said = self.folder / "said"
        with said.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    os.environ["ISOBAR"],
                    "serve",
                    "--listen",
                    address,
                    "--data",
                    str(self.folder / "data"),
                    "--log",
                    "warn",
                ],
                env={**kept, "ISOBAR_ADMIN_PASSWORD": PASSWORD, **settings},
                stdout=output,
                stderr=output,
            )
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            for line in said.read_text().splitlines():
                if line.startswith(READY):
                    self.url = line.removeprefix(READY).strip()
                    return
            time.sleep(0.05)
        raise AssertionError(f"the program did not start: {said.read_text()}")

    def kill(self) -> None:
        """Ends it as a crash does; its data stays."""
        self.process.kill()
        self.process.wait()


def admin(url: str, limits: Limits | None = None) -> Isobar:
    """Signs the first administrator in."""
    return Isobar.login(url, ADMIN, PASSWORD, limits=limits)


def make_device(isobar: Isobar) -> NewDevice:
    """Makes a project and a device in it."""
    project = done(project_create.sync(client=isobar, body=ProjectInput(name="Fridges")))
    return done(device_create.sync(client=isobar, body=DeviceInput(name="Fridge", project_uuid=project.id)))


@contextlib.contextmanager
def tcp(meet: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that treats each connection so, in a thread of its own."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                meet(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@contextlib.contextmanager
def front(answer: Callable[[http.server.BaseHTTPRequestHandler, bytes], None]) -> Iterator[str]:
    """A server of HTTP that does what a test wants of it with each call and its body."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def respond(self) -> None:
            answer(self, self.rfile.read(int(self.headers.get("content-length", 0))))

        do_GET = do_POST = do_DELETE = respond

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
