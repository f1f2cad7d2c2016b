import socket
import time
from collections.abc import Callable

import pytest
from server import tcp

from isobar_client import Isobar, IsobarError, Limits
from isobar_client.v2.api.auth import user_current


def against(meet: Callable[[socket.socket], None], limits: Limits | None = None) -> IsobarError:
    """Calls a server that treats each connection so."""
    with tcp(meet) as url, pytest.raises(IsobarError) as failed:
        user_current.sync(client=Isobar(url, api_key="a-secret", limits=limits or Limits(retries=1)))
    assert "a-secret" not in repr(failed.value.__dict__)
    return failed.value


def says(text: str) -> Callable[[socket.socket], None]:
    """Says this to whoever asks, and hangs up."""

    def meet(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(text.encode())

    return meet


def test_server_that_hangs_up_is_no_answer() -> None:
    failure = against(lambda connection: connection.close())
    assert failure.status == 0
    assert "no answer came" in failure.message


def test_server_that_never_answers_is_given_up_in_time() -> None:
    failure = against(lambda connection: time.sleep(2), Limits(timeout=0.1, retries=1))
    assert failure.message == "no answer came within 0.1 s"


def test_body_that_never_ends_is_given_up_in_time() -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        for _ in range(1000):
            connection.sendall(b" ")
            time.sleep(0.02)

    failure = against(drip, Limits(timeout=0.2, retries=0))
    assert failure.message == "no answer came within 0.2 s"


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ("\0rubbish\r\n\r\n", 0, "no answer came"),
        ("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<html>a-secret", 200, "no JSON"),
        ("HTTP/1.1 418 Tea\r\nconnection: close\r\n\r\n[1,", 418, "answered 418"),
        ('HTTP/1.1 400 Bad\r\nconnection: close\r\n\r\n{"message":7,"errors":[3]}', 400, "answered 400"),
        ("HTTP/1.1 400 Bad\r\nconnection: close\r\n\r\n" + "[" * 100_000, 400, "answered 400"),
    ],
)
def test_rubbish_is_no_answer(text: str, status: int, message: str) -> None:
    failure = against(says(text))
    assert failure.status == status
    assert message in failure.message


def test_redirect_is_not_followed() -> None:
    visits: list[socket.socket] = []
    with tcp(visits.append) as other:
        failure = against(says(f"HTTP/1.1 302 Found\r\nlocation: {other}\r\ncontent-length: 0\r\n\r\n"))
    assert failure.status == 302
    assert not visits


def test_answer_without_end_is_cut_off() -> None:
    taken: list[int] = []

    def pour(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(10_000):
            connection.sendall(b"[1]" * 20_000)
            taken.append(60_000)

    failure = against(pour, Limits(answer_bytes_max=1024 * 1024))
    assert "larger than" in failure.message
    assert sum(taken) < 64 * 1024 * 1024


def test_message_of_a_stream_without_end_is_cut_off() -> None:
    def pour(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ")
        for _ in range(10_000):
            connection.sendall(b"x" * 65_536)

    breaks: list[str] = []

    class Enough(Exception):
        pass

    def note(error: IsobarError, _: float) -> None:
        breaks.append(error.message)
        raise Enough

    with tcp(pour) as url, pytest.raises(Enough):
        next(Isobar(url, api_key="a-secret").stream(on_break=note))
    assert breaks == ["a message of the stream is too long"]
