"""Fills a new server with what the checks act on, and prints it as KEY=value lines for the shell.

With the argument `session` it prints the credentials of a new session: a jwt that was made before a long run of checks would have
expired after it. Environment: ISOBAR_URL, ISOBAR_ADMIN_PASSWORD.
"""

import os
import sys
import time

import requests

BASE = os.environ["ISOBAR_URL"] + "/v2"
PASSWORD = "wine-red-9"
IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PLANES = {
    "cloud": {
        "elements": {
            "reading": {
                "type": "deviceEvent",
                "triggers": {
                    "eventReceived": [
                        {"element": "climate", "ability": "store"},
                        {"element": "warm", "ability": "raise", "arguments": {"value": "payload"}},
                    ]
                },
            },
            "warm": {"type": "alarm", "properties": {"title": "too warm"}},
            "climate": {"type": "storage"},
            "highest": {
                "type": "deviceSetting",
                "properties": {"inputType": "number", "inputTypeProperties": {"min": 0, "max": 20}, "defaultValue": 8},
            },
        }
    }
}

CONFIGURATION = {"widgets": [{"id": "status", "type": "status"}]}


def call(method, path, jwt=None, headers_too=None, **more):
    headers = {**({"Authorization": f"Bearer {jwt}"} if jwt else {}), **(headers_too or {})}
    answer = requests.request(method, BASE + path, headers=headers, timeout=30, **more)
    assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
    return answer


def in_a_month():
    """A moment as the interface writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 30 * 86_400))


def login(name, password=PASSWORD):
    return call("POST", "/auth/login", json={"usernameOrEmail": name, "password": password})


def person(name, role, **more):
    names = {"firstName": name.title(), "lastName": "Frost", "company": "Dairy", "role": role}
    passwords = {"password": PASSWORD, "passwordConfirmation": PASSWORD}
    return {"username": name, "email": f"{name}@dairy.example", **names, **passwords, **more}


def first(jwt, path, **params):
    """The first of a list, as soon as there is one."""
    for _ in range(300):
        listed = call("GET", path, jwt, params=params).json()["data"]
        if listed:
            return listed[0]["id"]
        time.sleep(0.1)
    raise AssertionError(f"{path} stays empty")


def main():
    ana = call("POST", "/auth/register", json=person("ana", "developer")).json()
    jwt = login("ana").json()["jwtToken"]
    key = call("POST", f"/users/{ana['id']}/apiKeys", jwt, json={"name": "checks"}).json()["key"]
    other = call("POST", "/users", jwt, json=person("bea", "technician")).json()
    child = call("POST", "/organizations", jwt, json={"name": "North", "parentId": ana["organizationId"]}).json()
    boards = f"/organizations/{child['id']}/dashboards"
    names = ("Cold", "To be deleted")
    board, spare_board = (
        call("POST", boards, jwt, json={"name": name, "configuration": CONFIGURATION}).json() for name in names
    )
    link, spare_link = (
        call("POST", f"{boards}/{board['id']}/links", jwt, json={"name": name, "expiresAt": in_a_month()}).json()
        for name in ("Hall", "To be deleted")
    )
    view, spare_view = (call("POST", "/views", jwt, json={"name": name, "query": ""}).json() for name in names)
    project = call("POST", "/projects", jwt, json={"name": "Fridges"}).json()
    call("PUT", f"/projects/{project['id']}/specification", jwt, json={"name": "Fridges", "planes": PLANES})
    device = call("POST", "/devices", jwt, json={"name": "Fridge", "projectUuid": project["id"]}).json()
    place = {"deviceId": device["id"], "elementName": "reading"}
    event = call("POST", "/events/device", jwt, params=place, json={"temp": 9.1}).json()
    call("POST", "/events/cloud", jwt, params=place, json={"on": True})
    call("PUT", f"/devices/{device['id']}/settings/highest", jwt, json=7)
    spare = call("POST", "/projects", jwt, json={"name": "To be changed"}).json()
    changed = call("POST", "/devices", jwt, json={"name": "To be changed", "projectUuid": project["id"]}).json()
    call("POST", "/events/device", jwt, params={**place, "deviceId": changed["id"]}, json={"temp": 1})
    for thing in (f"devices/{changed['id']}", f"users/{other['id']}", f"projects/{project['id']}"):
        call("POST", f"/{thing}/image", jwt, data=IMAGE, headers_too={"Content-Type": "text/plain"})
    other_key = call("POST", f"/users/{other['id']}/apiKeys", jwt, json={"name": "to be deleted"}).json()
    admin = login("admin", os.environ["ISOBAR_ADMIN_PASSWORD"]).json()["jwtToken"]
    call("POST", "/notifications/system", admin, json={"message": "Back at noon"})
    found = {
        "ISOBAR_NOTIFICATION": first(jwt, "/notifications"),
        "ISOBAR_ALARM": first(jwt, "/alarms", **{"filter[deviceId][eq]": device["id"]}),
        "ISOBAR_VIEW": view["id"],
        "ISOBAR_SPARE_VIEW": spare_view["id"],
        "ISOBAR_BOARD": board["id"],
        "ISOBAR_SPARE_BOARD": spare_board["id"],
        "ISOBAR_SPARE_LINK": spare_link["id"],
        "ISOBAR_LINK_END": in_a_month(),
        # What an address shows behind its number sign.
        "ISOBAR_WALL": link["url"].partition("#")[2],
        "ISOBAR_SPARE_PROJECT": spare["id"],
        "ISOBAR_SPARE_DEVICE": changed["id"],
        "ISOBAR_SPARE_KEY": other_key["id"],
        "ISOBAR_PASSWORD": PASSWORD,
        "ISOBAR_API_KEY": key,
        "ISOBAR_DEVICE_TOKEN": device["token"],
        "ISOBAR_SELF": ana["id"],
        "ISOBAR_USER": other["id"],
        "ISOBAR_ORGANIZATION": child["id"],
        "ISOBAR_PROJECT": project["id"],
        "ISOBAR_DEVICE": device["id"],
        "ISOBAR_EVENT": event["id"],
    }
    tell(found)


def tell(found):
    for name, value in found.items():
        print(f"{name}={value}")


def session():
    ending, refreshing = login("ana"), login("ana")
    tell({"ISOBAR_LEAVING_JWT": ending.json()["jwtToken"], "ISOBAR_REFRESH": refreshing.cookies["refreshToken"]})


session() if sys.argv[1:] == ["session"] else main()
