import base64
import csv
import datetime
import io
import json
import pathlib
from uuid import UUID

import pytest
from server import Server, make_device

from isobar_client import Isobar, IsobarError, done
from isobar_client.v2 import api
from isobar_client.v2.api.data import values
from isobar_client.v2.api.devices import device_image_png, device_image_posted, device_image_set
from isobar_client.v2.api.events import cloud_event_next, cloud_event_send, history_event
from isobar_client.v2.api.notifications import notifications_delete
from isobar_client.v2.api.projects import specification_write
from isobar_client.v2.api.settings import setting_fetch, setting_update
from isobar_client.v2.models import AnyButNullType3, FreeObject, NewDevice, SpecificationInput

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
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def device(isobar: Isobar) -> NewDevice:
    made = make_device(isobar)
    design = SpecificationInput(name="Fridges", planes=FreeObject.from_dict(PLANES))
    assert isinstance(made.project_uuid, UUID)
    assert done(specification_write.sync(made.project_uuid, client=isobar, body=design)).create_version == "2"
    return made


def test_every_operation_is_generated() -> None:
    generated = {
        module.stem.replace("_", "") for folder in api.__path__ for module in pathlib.Path(folder).glob("*/*.py")
    }
    document = json.loads((pathlib.Path(__file__).parents[1] / "openapi.json").read_text())
    said = {operation["operationId"] for item in document["paths"].values() for operation in item.values()}
    assert {name for name in said if name.lower() not in generated} == set()


def test_design_stores_what_a_device_posts_and_settings_change(
    server: Server, isobar: Isobar, device: NewDevice
) -> None:
    itself = Isobar(server.url, device_token=device.token)
    body = {"temp": 9.1, "door": "open"}
    posted = itself.post_event("reading", body)
    assert done(history_event.sync(device.id, posted, client=isobar)).type_.value == "deviceEvent"
    listed = done(values.sync(device.id, "climate", client=isobar, limit=10, from_=device.created_at))
    assert [value.payload for value in listed.data] == [body]
    changed = done(setting_update.sync(device.id, "highest", client=isobar, body=7))
    assert (changed.value, changed.default_value) == (7, 8)
    assert setting_fetch.sync(device.id, "highest", client=isobar) == changed


def test_cloud_event_is_taken_once_by_its_device(server: Server, isobar: Isobar, device: NewDevice) -> None:
    itself = Isobar(server.url, device_token=device.token)
    body = AnyButNullType3.from_dict({"on": True})
    done(cloud_event_send.sync(client=isobar, device_id=device.id, element_name="climate", body=body))
    assert cloud_event_next.sync(client=itself) == {"on": True}
    assert cloud_event_next.sync_detailed(client=itself).status_code == 204


def test_image_goes_up_as_a_text_and_comes_back(isobar: Isobar, device: NewDevice) -> None:
    posted = f"data:image/png;base64,{PNG}"
    device_image_set.sync_detailed(device.id, client=isobar, body=posted)
    assert device_image_posted.sync_detailed(device.id, client=isobar).content.decode() == posted
    shown = device_image_png.sync_detailed(device.id, client=isobar)
    assert shown.content.startswith(base64.b64decode(PNG)[:8])
    with pytest.raises(IsobarError) as refused:
        device_image_set.sync_detailed(device.id, client=isobar, body="no image")
    assert refused.value.field("body")


def test_series_is_exported(server: Server, isobar: Isobar, device: NewDevice) -> None:
    itself = Isobar(server.url, device_token=device.token)
    for number in range(3):
        itself.post_event("reading", {"n": number})
    # The functions read one form of an answer: others are asked for by the client beneath them.
    path = f"/v2/devices/{device.id}/data/climate"
    params = {"columns": "payload.n", "sortBy": "createdAt"}
    answer = isobar.get_httpx_client().get(path, params=params, headers={"accept": "text/csv"})
    assert list(csv.reader(io.StringIO(answer.text))) == [["payload.n"], ["0"], ["1"], ["2"]]


def test_message_of_a_success_is_no_error(isobar: Isobar) -> None:
    end = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
    assert notifications_delete.sync_detailed(client=isobar, to=end).status_code == 200
