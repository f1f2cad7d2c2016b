"""A client generated from the OpenAPI document, used as a customer would."""

import base64
import csv
import datetime
import io
import json
import os
import pathlib

import pytest
from isobar_client import AuthenticatedClient, Client, models
from isobar_client.api.auth import session_login, user_current, user_register
from isobar_client.api.data import last_values, values
from isobar_client.api.devices import (
    device_create,
    device_fetch,
    device_image_png,
    device_image_posted,
    device_image_set,
    device_list,
)
from isobar_client.api.events import (
    cloud_event_next,
    cloud_event_send,
    device_event_create,
    event_stream,
    history_event,
)
from isobar_client.api.notifications import notification_list, notification_update, notifications_delete
from isobar_client.api.projects import project_create, specification_write
from isobar_client.api.settings import setting_fetch, setting_update
from isobar_client.api.users import user_image_png, user_image_set
from isobar_client.types import UNSET, File

URL = os.environ["ISOBAR_URL"]
PASSWORD = "wine-red-9"
PLANES = {
    "cloud": {
        "elements": {
            "reading": {
                "type": "deviceEvent",
                "triggers": {"eventReceived": [{"element": "climate", "ability": "store"}]},
            },
            "climate": {"type": "storage"},
            "highest": {"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 8}},
        }
    }
}
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
# Longest wait for an event of a stream, in seconds: a bound for a stream that hangs.
PATIENCE = 20


def developer(name):
    """A new developer's client."""
    stranger = Client(base_url=URL)
    body = models.NewUser(
        username=name,
        email=f"{name}@python.example",
        password=PASSWORD,
        password_confirmation=PASSWORD,
        first_name="Monty",
        last_name="Python",
        company=name,
        role=models.Role.DEVELOPER,
    )
    registered = user_register.sync_detailed(client=stranger, body=body)
    assert registered.status_code == 201, registered.content
    session = session_login.sync(client=stranger, body=models.Login(username_or_email=name, password=PASSWORD))
    assert isinstance(session, models.Tokens)
    assert session.jwt_token_expiry > datetime.datetime.now(datetime.timezone.utc)
    return AuthenticatedClient(base_url=URL, token=session.jwt_token)


@pytest.fixture(scope="module")
def ana():
    return developer("pia")


@pytest.fixture(scope="module")
def device(ana):
    project = project_create.sync(client=ana, body=models.ProjectInput(name="Fridges"))
    assert isinstance(project, models.Project)
    planes = models.FreeObject.from_dict(PLANES)
    written = specification_write.sync(
        project.id, client=ana, body=models.SpecificationInput(name="Fridges", planes=planes)
    )
    assert isinstance(written, models.Specification) and written.create_version == "2"
    created = device_create.sync(client=ana, body=models.DeviceInput(name="Fridge 7", project_uuid=project.id))
    assert isinstance(created, models.NewDevice) and created.token
    return created


def test_every_operation_is_generated():
    package = pathlib.Path(device_list.__file__).parents[1]
    generated = {module.stem.replace("_", "") for module in package.glob("*/*.py")}
    document = json.loads(pathlib.Path(os.environ["ISOBAR_DOCUMENT"]).read_text())
    said = {operation["operationId"] for item in document["paths"].values() for operation in item.values()}
    assert {name for name in said if name.lower() not in generated} == set()


def test_who_i_am(ana):
    me = user_current.sync(client=ana)
    assert isinstance(me, models.User)
    assert me.role is models.Role.DEVELOPER and me.last_active is not UNSET


def test_a_device_says_something_and_it_is_there(ana, device):
    itself = AuthenticatedClient(base_url=URL, token=device.token, prefix="", auth_header_name="cloud")
    body = {"temp": 9.1, "door": "open"}
    posted = device_event_create.sync(client=itself, element_name="reading", body=body)
    assert isinstance(posted, models.EventId)
    event = history_event.sync(device.id, posted.id, client=ana)
    assert isinstance(event, models.Event) and event.type_.value == "deviceEvent"
    listed = values.sync(device.id, "climate", client=ana, limit=10, from_=device.created_at)
    assert [value.payload for value in listed.data] == [body]
    last = last_values.sync(device.id, "climate", client=itself)
    assert last.values == body
    devices = device_list.sync(client=ana, depth="all", sort_by=["-name"])
    assert [one.id for one in devices.data] == [device.id] and devices.meta.total_docs == 1


def test_the_cloud_says_something_to_the_device(ana, device):
    itself = AuthenticatedClient(base_url=URL, token=device.token, prefix="", auth_header_name="cloud")
    sent = cloud_event_send.sync(client=ana, device_id=device.id, element_name="climate", body={"on": True})
    assert isinstance(sent, models.EventId)
    assert cloud_event_next.sync(client=itself) == {"on": True}
    assert cloud_event_next.sync_detailed(client=itself).status_code == 204


def text(content):
    """A body of text, as the generated operations take it."""
    return File(payload=io.BytesIO(content.encode()))


def test_images_go_up_and_come_back(ana, device):
    posted = f"data:image/png;base64,{PNG}"
    assert device_image_set.sync_detailed(device.id, client=ana, body=text(posted)).status_code == 204
    assert device_image_posted.sync_detailed(device.id, client=ana).content.decode() == posted
    shown = device_image_png.sync_detailed(device.id, client=ana)
    assert shown.headers["content-type"] == "image/png"
    assert shown.content.startswith(base64.b64decode(PNG)[:8])
    me = user_current.sync(client=ana)
    done = user_image_set.sync(me.id, client=ana, body=text(PNG))
    assert isinstance(done, models.ErrorBody) and done.errors == []
    assert user_image_png.sync_detailed(me.id, client=ana).content == shown.content
    refused = user_image_set.sync(me.id, client=ana, body=text("no image"))
    assert isinstance(refused, models.ErrorBody) and refused.errors[0].field == "body"


def test_a_series_is_exported(ana, device):
    itself = AuthenticatedClient(base_url=URL, token=device.token, prefix="", auth_header_name="cloud")
    for number in range(3):
        device_event_create.sync(client=itself, element_name="reading", body={"n": number})
    # The generator reads an answer in one form only: the others are asked for by its own request.
    request = values._get_kwargs(device.id, "climate", columns=["payload.n"], sort_by=["createdAt"])
    answer = ana.get_httpx_client().request(**request, headers={"accept": "text/csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0] == ["payload.n"] and [row for row in rows[1:] if row][-3:] == [["0"], ["1"], ["2"]]


def test_events_are_followed_as_they_come(ana, device):
    itself = AuthenticatedClient(base_url=URL, token=device.token, prefix="", auth_header_name="cloud")
    request = event_stream._get_kwargs(device_id=device.id)
    with ana.get_httpx_client().stream(**request, timeout=PATIENCE) as stream:
        assert stream.status_code == 200 and stream.headers["content-type"] == "text/event-stream"
        posted = device_event_create.sync(client=itself, element_name="reading", body={"live": True})
        data = next(line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: "))
    event = models.Event.from_dict(json.loads(data))
    assert event == history_event.sync(device.id, posted.id, client=ana)


def test_settings(ana, device):
    changed = setting_update.sync(device.id, "highest", client=ana, body=7)
    assert isinstance(changed, models.DeviceSetting) and changed.value == 7 and changed.default_value == 8
    assert setting_fetch.sync(device.id, "highest", client=ana) == changed


def test_notifications(ana):
    listed = notification_list.sync(client=ana, unread=True)
    for notification in listed.data:
        marked = notification_update.sync(notification.id, client=ana, body=models.ReadMark(read=True))
        assert isinstance(marked, models.ErrorBody) and marked.errors == []
    end = datetime.datetime(2100, 1, 1, tzinfo=datetime.timezone.utc)
    assert notifications_delete.sync_detailed(client=ana, to=end).status_code == 200


def test_refusals_have_a_type(ana, device):
    refused = device_create.sync(client=ana, body=models.DeviceInput(name="", project_uuid=device.id))
    assert isinstance(refused, models.ErrorBody)
    assert "name" in {fault.field for fault in refused.errors}
    missing = device_fetch.sync(device.project_uuid, client=ana)
    assert isinstance(missing, models.ErrorBody) and missing.message
    assert device_list.sync_detailed(client=Client(base_url=URL)).status_code == 401
