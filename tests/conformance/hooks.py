"""What schemathesis cannot know: which things exist, and what the run itself needs to live on."""

import atexit
import itertools
import os
import re

import schemathesis

UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$")
GIVEN = {name.removeprefix("ISOBAR_"): value for name, value in os.environ.items() if name.startswith("ISOBAR_")}
DEVICE, PROJECT, ORGANIZATION, USER = (GIVEN[name] for name in ("DEVICE", "PROJECT", "ORGANIZATION", "USER"))
BY_NOUN = {
    "users": USER,
    "organizations": ORGANIZATION,
    "projects": PROJECT,
    "devices": DEVICE,
    "notifications": GIVEN["NOTIFICATION"],
    "alarms": GIVEN["ALARM"],
    "views": GIVEN["VIEW"],
}
BY_NAME = {"organizationId": ORGANIZATION, "parentId": ORGANIZATION, "projectUuid": PROJECT, "deviceId": DEVICE}
NAMES = {"elementName": "climate", "settingName": "highest", "widgetId": "status"}
# What the rest of the run needs, and what is changed or deleted in its place.
SPARES = {GIVEN["SELF"]: USER, DEVICE: GIVEN["SPARE_DEVICE"], PROJECT: GIVEN["SPARE_PROJECT"]}
KEPT = {*SPARES, *SPARES.values(), ORGANIZATION}
NOBODY = "01890a5d-ac96-774b-bcce-b302099a8057"
numbers = itertools.count()
IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def is_id(value):
    """Whether it is a well-formed identifier."""
    return isinstance(value, str) and UUID.fullmatch(value) is not None


def exists(value):
    """Whether a well-formed identifier is to stand for one that exists: three of four are."""
    return is_id(value) and int(value[:2], 16) % 4 != 0


def is_odd(value):
    """Picks about half of all texts."""
    return isinstance(value, str) and len(value) % 2 == 1


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    operation = context.operation
    # The others fill all places for views.
    if operation.path == "/v2/views/{id}" and operation.method.upper() == "DELETE" and exists(path_parameters.get("id")):
        return {"id": GIVEN["SPARE_VIEW"]}
    # What is deleted as a whole would be missing everywhere else.
    if not path_parameters or (operation.method.upper() == "DELETE" and operation.path.endswith("/{id}")):
        return path_parameters
    noun = operation.path.split("/")[2]
    for name, value in path_parameters.items():
        if name == "id" and operation.path.endswith("/events/{id}") and exists(value):
            path_parameters[name] = GIVEN["EVENT"]
        elif name in ("id", "deviceId") and exists(value):
            path_parameters[name] = BY_NOUN.get(noun, value)
        elif name == "dashboardId" and exists(value):
            is_end = operation.method.upper() == "DELETE" and operation.path.endswith("/{dashboardId}")
            path_parameters[name] = GIVEN["SPARE_BOARD" if is_end else "BOARD"]
        elif name == "linkId" and exists(value):
            path_parameters[name] = GIVEN["SPARE_LINK"]
        elif name == "keyId" and exists(value):
            path_parameters[name] = GIVEN["SPARE_KEY"]
        elif name == "number" and isinstance(value, int) and value > 0 and value % 4 != 0:
            path_parameters[name] = 1
        elif name in NAMES and is_odd(value):
            path_parameters[name] = NAMES[name]
    return path_parameters


@schemathesis.hook
def map_query(context, query):
    path = context.operation.path
    if not query:
        return query
    for name, value in list(query.items()):
        if name in BY_NAME and exists(value):
            query[name] = BY_NAME[name]
        elif name == "elementName" and is_odd(value):
            query[name] = "climate" if path.endswith("/buckets") else "reading"
        elif name == "zone":
            query[name] = "Europe/Paris"
        elif name == "deviceIds" and isinstance(value, list):
            query[name] = [DEVICE if exists(item) else item for item in value]
        elif name == "emailOrUsername" and is_odd(value):
            query[name] = "bea"
        elif name == "deviceTagValue" and path.endswith("/integrations") and is_odd(value):
            query.update({"deviceTag": "serial", "deviceTagValue": "f7", "projectUuid": PROJECT})
    # One of these at a time names devices, which the document cannot say.
    if path.endswith("/data/buckets") and is_id(query.get("projectUuid")):
        query["projectUuid"] = PROJECT
        for name in ("organizationId", "deviceIds"):
            named = query.get(name)
            if is_id(named) or (isinstance(named, list) and all(is_id(item) for item in named)):
                del query[name]
    return query


@schemathesis.hook
def map_body(context, body):
    path = context.operation.path
    if path.endswith("/image") and isinstance(body, str) and len(body) % 4 != 3:
        return IMAGE
    if path.endswith("/{settingName}") and isinstance(body, (int, float)):
        return 7
    # A link ends within a year, which the document cannot say.
    if path.endswith("/links") and isinstance(body, dict) and MOMENT.match(str(body.get("expiresAt"))):
        body = {**body, "expiresAt": GIVEN["LINK_END"]}
    if path in ("/v2/users", "/v2/auth/register") and isinstance(body, dict):
        body = person(body, is_registration=path.endswith("/register"))
    return known(body)


def person(body, is_registration):
    """What the document cannot say: a name and an address of their own, and a password that is said twice."""
    body, number = dict(body), next(numbers)
    if isinstance(body.get("username"), str) and 1 <= len(body["username"]) <= 254:
        body["username"] = f"someone{number}"
    if isinstance(body.get("email"), str) and 3 <= len(body["email"]) <= 254:
        body["email"] = f"someone{number}@dairy.example"
    again = body.get("passwordConfirmation", None if is_registration else body.get("password"))
    if is_password(body.get("password")) and is_password(again):
        body["passwordConfirmation"] = body["password"]
    elif body.get("password") is None and is_password(body.get("passwordConfirmation")):
        del body["passwordConfirmation"]
    return body


def is_password(value):
    return isinstance(value, str) and 6 <= len(value) <= 128


def known(body):
    if isinstance(body, dict):
        return {name: BY_NAME[name] if name in BY_NAME and exists(value) else value for name, value in body.items()}
    if isinstance(body, list):
        return [DEVICE if exists(item) else known(item) for item in body]
    return body


@schemathesis.hook
def before_call(context, case, kwargs):
    path_parameters = case.path_parameters or {}
    method, path = case.method.upper(), case.operation.path
    # No part of the run may take from the others what they act on, nor end its own credentials.
    is_end = method == "DELETE" and path.endswith("/{id}")
    is_design = path.startswith("/v2/projects/") and (method == "PUT" or path.endswith("/restore"))
    is_loss = method == "DELETE" or path.endswith("/token") or is_design
    if is_end and path_parameters.get("id") in KEPT:
        path_parameters["id"] = NOBODY
    elif is_loss or (method != "GET" and path.startswith("/v2/users/")):
        for name, value in list(path_parameters.items()):
            path_parameters[name] = SPARES.get(value, value) if isinstance(value, str) else value
    # Nor move it to where it has no settings and no values.
    if method == "PUT" and path == "/v2/devices/{id}" and path_parameters.get("id") in KEPT and isinstance(case.body, dict):
        for name in ("projectUuid", "organizationId"):
            if is_id(case.body.get(name)):
                case.body[name] = BY_NAME[name]
    # Nobody waits for a minute here; scenes do that with a clock of their own.
    wait = str((case.query or {}).get("wait", ""))
    if wait.isdigit() and 0 < int(wait) <= 60:
        case.query["wait"] = 0


# What came of each operation. A run in which nothing succeeds would prove little.
statuses = {}


@schemathesis.hook
def after_call(context, case, response):
    operation = case.operation.definition.raw.get("operationId", case.operation.label)
    statuses.setdefault(operation, set()).add(response.status_code)


def sum_up():
    fruitless = sorted(name for name, seen in statuses.items() if not any(200 <= status < 400 for status in seen))
    print(f"calls: {len(statuses)} operations, {len(statuses) - len(fruitless)} of them with success", flush=True)
    if fruitless:
        print("calls: never a success:", ", ".join(fruitless), flush=True)
    with open(os.environ["ISOBAR_FRUITLESS"], "a", encoding="utf-8") as file:
        file.writelines(f"{name}\n" for name in fruitless)


atexit.register(sum_up)
