import http.server
import pathlib
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from server import ADMIN, Server, admin, front, make_device

from isobar_client import Isobar, IsobarError, Limits, done, items
from isobar_client.v2.api.auth import user_current
from isobar_client.v2.api.data import last_values
from isobar_client.v2.api.devices import device_create, device_delete, device_list, devices_create
from isobar_client.v2.api.projects import project_create, project_list
from isobar_client.v2.api.users import api_key_create
from isobar_client.v2.models import ApiKeyInput, DeviceInput, DeviceListFilter, ProjectInput


class Watch:
    """Counts the calls of each path, and keeps the last token."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: dict[str, int] = {}
        self.token = ""
        lock = threading.Lock()
        handle = httpx.HTTPTransport.handle_request

        def watched(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
            with lock:
                self.seen[request.url.path] = self.seen.get(request.url.path, 0) + 1
                self.token = request.headers.get("authorization", self.token)
            return handle(transport, request)

        monkeypatch.setattr(httpx.HTTPTransport, "handle_request", watched)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_wrong_password_is_refused_without_being_repeated(server: Server, watch: Watch) -> None:
    with pytest.raises(IsobarError) as refused:
        Isobar.login(server.url, ADMIN, "a-secret-guess")
    assert refused.value.status == 401
    assert "a-secret-guess" not in repr(refused.value.__dict__)
    assert watch.seen == {"/v2/auth/login": 1}


def test_ended_token_is_renewed_once_for_parallel_calls(server: Server, watch: Watch) -> None:
    isobar = admin(server.url)
    user_current.sync(client=isobar)
    headers = {"authorization": watch.token}
    assert httpx.post(f"{server.url}/v2/auth/logout", headers=headers).status_code == 204
    assert httpx.get(f"{server.url}/v2/auth/user", headers=headers).status_code == 401
    with ThreadPoolExecutor(8) as threads:
        users = list(threads.map(lambda _: done(user_current.sync(client=isobar)), range(8)))
    assert {user.username for user in users} == {ADMIN}
    assert watch.seen["/v2/auth/refreshToken"] == 1


def test_session_ends_with_logout(server: Server) -> None:
    isobar = admin(server.url)
    isobar.logout()
    with pytest.raises(IsobarError) as refused:
        user_current.sync(client=isobar)
    assert refused.value.status == 401


def test_api_key_and_device_token_call_without_a_session(server: Server, isobar: Isobar) -> None:
    me = done(user_current.sync(client=isobar))
    key = done(api_key_create.sync(me.id, client=isobar, body=ApiKeyInput(name="tests"))).key
    by_key = Isobar(server.url, api_key=key)
    assert done(user_current.sync(client=by_key)).id == me.id
    device = make_device(by_key)
    itself = Isobar(server.url, device_token=device.token)
    itself.post_event("reading", {"temp": 9.1})
    assert done(last_values.sync(device.id, "reading", client=itself)).values == {"temp": 9.1}
    assert key not in repr(by_key)
    assert device.token not in repr(itself)


def test_list_yields_every_item_of_all_pages_once(isobar: Isobar, watch: Watch) -> None:
    project = done(project_create.sync(client=isobar, body=ProjectInput(name="Many")))
    names = [f"Fridge {place}" for place in range(7)]
    body = [DeviceInput(name=name, project_uuid=project.id) for name in names]
    assert done(devices_create.sync(client=isobar, body=body)).errors == []
    of_project = DeviceListFilter.from_dict({"filter[projectUuid][eq]": str(project.id)})
    listed = items(device_list.sync, client=isobar, limit=3, sort_by=["name"], filter_=of_project)
    assert [device.name for device in listed] == names
    assert watch.seen["/v2/devices"] == 3


def test_list_by_creation_is_not_shifted_by_changes(isobar: Isobar, watch: Watch) -> None:
    project = done(project_create.sync(client=isobar, body=ProjectInput(name="Changing")))
    made = [
        done(device_create.sync(client=isobar, body=DeviceInput(name=f"Fridge {place}", project_uuid=project.id)))
        for place in range(6)
    ]
    watch.seen.clear()
    of_project = DeviceListFilter.from_dict({"filter[projectUuid][eq]": str(project.id)})
    listed = items(device_list.sync, client=isobar, limit=2, sort_by=["createdAt"], filter_=of_project)
    seen = [next(listed).name, next(listed).name]
    device_delete.sync_detailed(made[0].id, client=isobar)
    seen += [device.name for device in listed]
    assert seen == [f"Fridge {place}" for place in range(6)]
    assert watch.seen["/v2/devices"] == 3


def test_private_authority_and_proxy_are_arguments(server: Server, tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        Isobar(server.url, ca_file=str(tmp_path / "nothing.pem"))
    asked: list[str] = []

    def answer(call: http.server.BaseHTTPRequestHandler, _: bytes) -> None:
        asked.append(call.path)
        call.send_response(503)
        call.end_headers()

    with front(answer) as proxy:
        proxied = Isobar("http://isobar.invalid", api_key="k", proxy=proxy, limits=Limits(retries=0))
        with pytest.raises(IsobarError, match="503"):
            user_current.sync(client=proxied)
    assert asked == ["http://isobar.invalid/v2/auth/user"]


def test_list_that_is_left_asks_for_no_further_page(isobar: Isobar, watch: Watch) -> None:
    assert next(items(project_list.sync, client=isobar, limit=1)).id
    assert watch.seen["/v2/projects"] == 1


def test_refusal_names_every_field_and_the_request(server: Server, isobar: Isobar) -> None:
    device = make_device(isobar)
    with pytest.raises(IsobarError) as refused:
        device_create.sync(client=isobar, body=DeviceInput(name="", project_uuid=device.id, description="x" * 100_000))
    assert refused.value.status == 400
    assert {fault.field for fault in refused.value.fields} == {"name", "description"}
    assert "1 to 80" in (refused.value.field("name") or "")
    assert refused.value.request_id
    assert not refused.value.is_temporary


def test_address_and_secrets_that_could_leak_are_refused_unquoted(server: Server) -> None:
    with pytest.raises(ValueError, match="no credentials"):
        Isobar("http://user:secret@localhost")
    with pytest.raises(ValueError, match="other characters") as refused:
        Isobar(server.url, api_key="sec\nret")
    assert "ret" not in str(refused.value).split()
    with pytest.raises(ValueError, match="begins with http"):
        Isobar("ftp://localhost")
