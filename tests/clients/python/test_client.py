"""A client generated from the OpenAPI document, used as a customer would."""

import datetime
import json
import os
import pathlib

import pytest
from isobar_client import AuthenticatedClient, Client, models
from isobar_client.api.auth import session_login, user_current, user_register
from isobar_client.api.data import last_values, values
from isobar_client.api.devices import device_create, device_fetch, device_list
from isobar_client.api.events import cloud_event_next, cloud_event_send, device_event_create, history_event
from isobar_client.api.notifications import notification_list, notification_update, notifications_delete
from isobar_client.api.projects import project_create, specification_write
from isobar_client.api.settings import setting_fetch, setting_update
from isobar_client.types import UNSET

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
# The generator leaves out what takes a body of text.
NOT_GENERATED = {"deviceImageSet", "organizationImageSet", "projectImageSet", "userImageSet"}


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
    assert {name for name in said - NOT_GENERATED if name.lower() not in generated} == set()


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
