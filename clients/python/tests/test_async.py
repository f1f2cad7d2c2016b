import asyncio
import http.server
from typing import Any
from uuid import UUID

import httpx
import pytest
from server import ADMIN, PASSWORD, Server, front, make_device

from isobar_client import AsyncIsobar, EventItem, Isobar, IsobarError, Limits, done, items_async
from isobar_client.v2.api.auth import user_current
from isobar_client.v2.api.devices import device_list
from isobar_client.v2.api.events import history
from isobar_client.v2.api.projects import project_create
from isobar_client.v2.models import ProjectInput

Call = http.server.BaseHTTPRequestHandler


def test_session_is_renewed_once_for_parallel_calls(server: Server) -> None:
    async def run() -> None:
        async with await AsyncIsobar.login(server.url, ADMIN, PASSWORD) as isobar:
            token = (await user_current.asyncio_detailed(client=isobar)) and isobar._auth
            headers = {"authorization": f"Bearer {token._token}"}  # type: ignore[union-attr]
            async with httpx.AsyncClient() as other:
                assert (await other.post(f"{server.url}/v2/auth/logout", headers=headers)).status_code == 204
            users = await asyncio.gather(*(user_current.asyncio(client=isobar) for _ in range(8)))
            assert {done(user).username for user in users} == {ADMIN}
            await isobar.logout()
            with pytest.raises(IsobarError, match="401"):
                await user_current.asyncio(client=isobar)
        with pytest.raises(IsobarError, match="401"):
            await AsyncIsobar.login(server.url, ADMIN, "a-secret-guess")

    asyncio.run(run())


def test_events_are_posted_listed_and_streamed(server: Server, isobar: Isobar) -> None:
    device = make_device(isobar)

    async def run() -> None:
        async with (
            await AsyncIsobar.login(server.url, ADMIN, PASSWORD) as user,
            AsyncIsobar(server.url, device_token=device.token) as itself,
        ):
            first = await itself.post_event("reading", {"n": 0})
            stream = user.stream(device_id=device.id, last_event_id=str(first))
            for n in (1, 2):
                await itself.post_event("reading", {"n": n})
            heard: list[Any] = []
            async for item in stream:
                assert isinstance(item, EventItem)
                heard.append(item.event.payload)
                if len(heard) == 2:
                    break
            assert heard == [{"n": 1}, {"n": 2}]
            listed = [event.payload async for event in items_async(history.asyncio, device.id, client=user, limit=2)]
            assert listed == [{"n": 2}, {"n": 1}, {"n": 0}]
            ids: list[UUID] = []
            async for each in items_async(device_list.asyncio, client=user, limit=1, sort_by=["-createdAt"]):
                ids.append(each.id)
            assert ids[0] == device.id
            assert len(set(ids)) == len(ids)

    asyncio.run(run())


def test_rate_limit_is_waited_out_and_other_refusals_of_writes_are_final() -> None:
    calls: list[int] = []

    def refuse(call: Call, _: bytes) -> None:
        calls.append(503 if calls else 429)
        call.send_response(calls[-1])
        call.send_header("retry-after", "0")
        call.send_header("content-length", "0")
        call.end_headers()

    async def run(url: str) -> None:
        async with AsyncIsobar(url, api_key="k", limits=Limits(retries=2)) as isobar:
            with pytest.raises(IsobarError, match="503"):
                await project_create.asyncio(client=isobar, body=ProjectInput(name="Once"))

    with front(refuse) as url:
        asyncio.run(run(url))
    assert calls == [429, 503]


def test_clients_are_for_threads_or_for_a_loop(server: Server) -> None:
    with pytest.raises(TypeError, match="Isobar is for threads"):
        AsyncIsobar(server.url).get_httpx_client()
    with pytest.raises(TypeError, match="AsyncIsobar"):
        Isobar(server.url).get_async_httpx_client()
    assert "secret" not in repr(AsyncIsobar(server.url, api_key="secret"))
