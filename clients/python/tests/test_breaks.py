import contextlib
import http.server
import pathlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import httpx
import pytest
from server import Server, admin, front, make_device

from isobar_client import EventItem, Isobar, IsobarError, Limits, done, items
from isobar_client.v2.api.auth import user_current
from isobar_client.v2.api.events import history
from isobar_client.v2.api.operations import about
from isobar_client.v2.api.projects import project_create, project_delete
from isobar_client.v2.api.users import api_key_create
from isobar_client.v2.models import ApiKeyInput, ProjectInput

Call = http.server.BaseHTTPRequestHandler
NOWHERE = UUID("019a0000-0000-7000-8000-000000000000")


def post(device: Isobar, n: int) -> UUID:
    return device.post_event("reading", {"n": n})


def stored(isobar: Isobar, device: UUID) -> list[Any]:
    return [event.payload for event in items(history.sync, device, client=isobar)]


def forward(url: str, call: Call, body: bytes) -> httpx.Response:
    headers = {name: value for name, value in call.headers.items() if name.lower() not in ("host", "content-length")}
    return httpx.request(call.command, url + call.path, headers=headers, content=body)


def deliver(call: Call, answer: httpx.Response, retry_after: str = "") -> None:
    call.send_response(answer.status_code)
    if retry_after:
        call.send_header("retry-after", retry_after)
    call.send_header("content-length", str(len(answer.content)))
    call.end_headers()
    call.wfile.write(answer.content)


def refuse(status: int, retry_after: str, calls: list[str]) -> Callable[[Call, bytes], None]:
    def answer(call: Call, _: bytes) -> None:
        calls.append(call.command)
        deliver(call, httpx.Response(status, json={"message": "not now", "errors": []}), retry_after)

    return answer


def test_event_whose_answer_is_lost_is_stored_once(server: Server, isobar: Isobar) -> None:
    device = make_device(isobar)
    keys: list[str] = []

    def lose_the_first(call: Call, body: bytes) -> None:
        keys.append(call.headers["idempotency-key"])
        answer = forward(server.url, call, body)
        if len(keys) > 1:
            deliver(call, answer)

    with front(lose_the_first) as url:
        post(Isobar(url, device_token=device.token), 1)
    assert keys[0]
    assert keys == [keys[0]] * 2
    assert stored(isobar, device.id) == [{"n": 1}]


def test_rate_limit_is_waited_for_and_the_event_stored_once(tmp_path: pathlib.Path) -> None:
    limited = Server(tmp_path, ISOBAR_RATE_LIMIT__DEVICE="1")
    device = make_device(admin(limited.url))
    waits: list[str] = []
    is_refused = threading.Event()

    def shorten(call: Call, body: bytes) -> None:
        try:
            answer = forward(limited.url, call, body)
        except httpx.HTTPError:
            return
        # The server means up to a minute; the test gives the client a second, and takes the limit away meanwhile.
        if answer.status_code == 429:
            waits.append(answer.headers["retry-after"])
            is_refused.set()
        deliver(call, answer, "1" if answer.status_code == 429 else "")

    try:
        with front(shorten) as url, ThreadPoolExecutor(3) as threads:
            itself = Isobar(url, device_token=device.token, limits=Limits(retries=30))
            # The window ends with the minute of the clock, so that two events may fall in two of them.
            sent = [threads.submit(post, itself, n) for n in range(3)]
            assert is_refused.wait(30)
            limited.kill()
            limited.start()
            assert len({future.result() for future in sent}) == 3
        assert 0 <= int(waits[0]) <= 60
        assert len(stored(admin(limited.url), device.id)) == 3
    finally:
        limited.kill()


def test_wait_beyond_the_bound_fails_at_once_and_tells_of_it() -> None:
    with front(refuse(429, "3600", [])) as url, pytest.raises(IsobarError) as refused:
        about.sync(client=Isobar(url))
    assert (refused.value.status, refused.value.retry_after, refused.value.message) == (429, 3600, "not now")


def test_write_without_a_key_is_never_sent_twice() -> None:
    calls: list[str] = []
    with front(refuse(503, "0", calls)) as url:
        isobar = Isobar(url, api_key="k", limits=Limits(retries=2))
        with pytest.raises(IsobarError, match="503"):
            project_create.sync(client=isobar, body=ProjectInput(name="Once"))
        with pytest.raises(IsobarError, match="503"):
            project_delete.sync_detailed(NOWHERE, client=isobar)
        with pytest.raises(IsobarError, match="503"):
            about.sync(client=isobar)
    assert calls == ["POST", "DELETE", "GET", "GET", "GET"]


def test_call_that_the_rate_limit_refuses_is_sent_again(server: Server, isobar: Isobar) -> None:
    calls: list[str] = []
    refused = refuse(429, "0", calls)

    def refuse_the_first(call: Call, body: bytes) -> None:
        if not calls:
            refused(call, body)
        else:
            deliver(call, forward(server.url, call, body))

    key = done(
        api_key_create.sync(done(user_current.sync(client=isobar)).id, client=isobar, body=ApiKeyInput(name="k"))
    ).key
    with front(refuse_the_first) as url:
        made = done(project_create.sync(client=Isobar(url, api_key=key), body=ProjectInput(name="Waited for")))
    assert made.name == "Waited for"
    assert calls == ["POST"]


@pytest.mark.parametrize(("keys", "attempts"), [(("a", "b"), 2), (("a", None), 1)])
def test_batch_is_sent_again_if_all_its_items_have_keys(
    server: Server, isobar: Isobar, keys: tuple[str | None, ...], attempts: int
) -> None:
    device = make_device(isobar)
    calls: list[int] = []

    def lose_the_first(call: Call, body: bytes) -> None:
        answer = forward(server.url, call, body)
        calls.append(answer.status_code)
        if len(calls) > 1:
            deliver(call, answer)

    batch = [
        {"elementName": "reading", "payload": {"n": n}, **({"idempotencyKey": key} if key else {})}
        for n, key in enumerate(keys)
    ]
    with front(lose_the_first) as url:
        itself = Isobar(url, device_token=device.token)
        with contextlib.nullcontext() if attempts > 1 else pytest.raises(IsobarError):
            itself.get_httpx_client().post("/v2/events/device/batch", json=batch)
    assert calls == [200] * attempts
    assert sorted(payload["n"] for payload in stored(isobar, device.id)) == [0, 1]


def test_stream_broken_before_its_first_event_misses_nothing(server: Server, isobar: Isobar) -> None:
    device = make_device(isobar)
    itself = Isobar(server.url, device_token=device.token)
    post(itself, 0)
    opened: list[str] = []

    def cut_the_first(call: Call, _: bytes) -> None:
        opened.append(call.headers.get("last-event-id", ""))
        headers = {"authorization": call.headers["authorization"]}
        if opened[-1]:
            headers["last-event-id"] = opened[-1]
        with httpx.stream("GET", server.url + call.path, headers=headers) as answer:
            call.send_response(answer.status_code)
            call.send_header("content-type", answer.headers["content-type"])
            call.end_headers()
            for piece in answer.iter_bytes():
                call.wfile.write(piece)
                call.wfile.flush()
                if len(opened) == 1:
                    break
        if len(opened) == 1:
            post(itself, 1)

    key = done(
        api_key_create.sync(done(user_current.sync(client=isobar)).id, client=isobar, body=ApiKeyInput(name="s"))
    ).key
    with front(cut_the_first) as url:
        item = next(Isobar(url, api_key=key).stream(device_id=device.id))
    assert isinstance(item, EventItem)
    assert item.event.payload == {"n": 1}
    assert opened[0] == ""
    assert opened[1]


def test_stream_goes_on_behind_the_last_event_after_a_crash(server: Server, isobar: Isobar) -> None:
    device = make_device(isobar)
    itself = Isobar(server.url, device_token=device.token, limits=Limits(retries=30))
    stop, is_open = threading.Event(), threading.Event()
    breaks: list[str] = []
    stream = isobar.stream(device_id=device.id, stop=stop, on_break=lambda error, _: breaks.append(error.message))

    def post_until_open() -> None:
        while not is_open.is_set():
            post(itself, 0)
            time.sleep(0.1)

    # The first event is posted until the stream is open to hear one.
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(post_until_open)
        assert isinstance(next(stream), EventItem)
        is_open.set()
        opening.result()
    server.kill()
    server.start()
    for n in (1, 2, 3):
        post(itself, n)
    heard: list[Any] = []
    for item in stream:
        assert isinstance(item, EventItem)
        if item.event.payload != {"n": 0}:
            heard.append(item.event.payload)
        if len(heard) == 3:
            stop.set()
    assert heard == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert breaks


def test_stream_that_is_out_of_reach_is_refused(isobar: Isobar) -> None:
    with pytest.raises(IsobarError, match="404"):
        next(isobar.stream(device_id=NOWHERE))


def test_stream_that_cannot_be_resumed_says_so(isobar: Isobar) -> None:
    with pytest.raises(IsobarError) as refused:
        next(isobar.stream(last_event_id="01900000-0000-7000-8000-000000000000"))
    assert refused.value.status == 400
    assert refused.value.field("header.Last-Event-ID")
