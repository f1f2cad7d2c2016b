"""The devices' dashboard: each of its queries, sent as Grafana's data source Infinity sends it, is answered with what its panel reads.

What Infinity sends is taken from its sources (github.com/grafana/grafana-infinity-datasource):
- src/interpolate.ts: variables are filled into the URL, the parameters and the root selector, before the request leaves the browser;
- pkg/models/macros_test.go: `${__from}` is milliseconds (1500376552001), `${__from:date:iso}` RFC 3339 (2017-07-18T11:15:52.001Z);
- pkg/models/macros.go: `${__interval}` is a whole number and s, m or h (Grafana itself: also d);
- pkg/infinity/request.go: parameters are put behind those of the URL, ordered by name and percent-encoded (net/url, Values.Encode);
- pkg/infinity/headers.go: `Accept: application/json;q=0.9,text/plain` or `text/csv; charset=utf-8`, `Accept-Encoding: gzip`, the API key
  as the value of the header that is named in the settings.
The root selector is JSONata; of what it yields a row is made of each object, and of a row a column by each selector.
"""

import csv
import datetime
import gzip
import io
import json
import re
import subprocess
import time
import urllib.parse

import yaml
from server import DEPLOY, Administrator, check, fetch, folder, isobar

DASHBOARD = DEPLOY / "grafana" / "isobar-devices.json"
SOURCES = DEPLOY / "grafana" / "provisioning" / "datasources.yaml"
ACCEPT = {"json": "application/json;q=0.9,text/plain", "csv": "text/csv; charset=utf-8"}
# A name that only arrives if everything is encoded.
ELEMENT = "climate & air/1"
INTERVALS = ["1s", "5s", "15s", "1m", "5m", "30m", "2h", "12h", "1d", "7d", "30d"]
EVALUATE = """
const jsonata = require("jsonata");
const { selector, data } = JSON.parse(require("fs").readFileSync(0, "utf8"));
jsonata(selector).evaluate(data).then((found) => console.log(JSON.stringify(found ?? null)));
"""


def filled_in(text, variables):
    """Returns a text with Grafana's variables in it replaced."""
    def value(match):
        name, _, form = match[1].partition(":")
        if form == "percentencode":
            return urllib.parse.quote(variables[name], safe="")
        return variables[match[1]]

    return re.sub(r"\$\{([^}]+)\}", value, text)


def request_of(target, variables):
    """Returns path and headers as Infinity makes them."""
    params = [(param["key"], filled_in(param["value"], variables)) for param in target["url_options"]["params"]]
    path = filled_in(target["url"], variables) + "?" + urllib.parse.urlencode(sorted(params))
    return path, {"accept": ACCEPT[target["type"]], "accept-encoding": "gzip"}


def body_of(answer):
    """Returns status and text of an answer."""
    status, headers, body = answer
    return status, (gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body).decode()


def rows_of(target, text, variables):
    """Returns the rows that Infinity makes of an answer."""
    if target["type"] == "csv":
        return list(csv.DictReader(io.StringIO(text)))
    asked = json.dumps({"selector": filled_in(target["root_selector"], variables), "data": json.loads(text)})
    ran = subprocess.run(["node", "-e", EVALUATE], input=asked, capture_output=True, text=True, timeout=30)
    check(ran.returncode == 0, f"{target['root_selector']} is JSONata: {ran.stderr}")
    found = json.loads(ran.stdout)
    return [] if found is None else found if isinstance(found, list) else [found]


def fits(value, kind):
    """Returns true if a value is of the kind that its column says."""
    match kind:
        case "timestamp":
            return datetime.datetime.fromisoformat(value.replace("Z", "+00:00")) is not None
        case "number":
            return value is None or isinstance(value, int | float)
        case _:
            return isinstance(value, str)


class Infinity:
    """The data source, as it is provisioned, of a server."""

    def __init__(self, url, key):
        source = next(source for source in yaml.safe_load(SOURCES.read_text())["datasources"] if "infinity" in source["type"])
        settings = source["jsonData"]
        check(settings["auth_method"] == "apiKey" and settings["apiKeyType"] == "header", "a key is sent in a header")
        check(source["secureJsonData"]["apiKeyValue"] == "$ISOBAR_API_KEY", "the key is Grafana's to keep")
        self.url, self.key = url, {settings["apiKeyKey"]: key}
        health = settings["customHealthCheckUrl"].removeprefix("$ISOBAR_URL")
        check(fetch(url, "GET", health, headers=self.key)[0] == 200, "the data source is well")

    def ask(self, target, variables):
        path, headers = request_of(target, variables)
        status, text = body_of(fetch(self.url, "GET", path, headers={**headers, **self.key}))
        check(status == 200, f"{path} is answered: {status} {text}")
        return rows_of(target, text, variables)


def stage(url):
    """Makes a device that has said something; returns its id and an API key."""
    admin = Administrator(url)
    me = admin.get("/v2/auth/user")
    key = admin.post(f"/v2/users/{me['id']}/apiKeys", {"name": "Grafana", "role": "basicUser"}, wanted=201)["key"]
    project = admin.post("/v2/projects", {"name": "Fridges"}, wanted=201)
    linked = [{"element": ELEMENT, "ability": "store"}, {"element": "warm", "ability": "raise", "arguments": {"value": "payload"}}]
    elements = {
        "in": {"type": "deviceEvent", "triggers": {"eventReceived": linked}},
        ELEMENT: {"type": "storage"},
        "warm": {"type": "alarm", "properties": {"title": "too warm"}},
    }
    planes = {"cloud": {"elements": elements}}
    admin.call("PUT", f"/v2/projects/{project['id']}/specification", {"name": "Fridges", "planes": planes})
    device = admin.post("/v2/devices", {"name": "Fridge", "projectUuid": project["id"]}, wanted=201)
    place = urllib.parse.urlencode({"deviceId": device["id"], "elementName": "in"})
    for temp in (9.5, 4.5, 7):
        admin.post(f"/v2/events/device?{place}", {"temp": temp, "air.co2": 410, "door": "shut"}, wanted=201)
    return device["id"], key


def check_variables(infinity, dashboard, device):
    """Holds what people choose from; returns the choice."""
    now = int(time.time() * 1000)
    iso = lambda millis: datetime.datetime.fromtimestamp(millis / 1000, datetime.UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    begin, end = now - 6 * 3_600_000, now + 60_000
    variables = {"__from": str(begin), "__to": str(end), "__from:date:iso": iso(begin), "__to:date:iso": iso(end), "__interval": "15s"}
    wanted = {"device": [{"__text": "Fridge", "__value": device}], "element": [{"__text": ELEMENT, "__value": ELEMENT}]}
    wanted["field"] = [{"__text": key, "__value": f'payload["{key}"]'} for key in ("temp", "air.co2", "door")]
    for variable in dashboard["templating"]["list"][1:]:
        name = variable["name"]
        rows = infinity.ask(variable["query"]["infinityQuery"], variables)
        check(rows == wanted[name], f"choices of {name}: {rows}")
        variables[name] = rows[0]["__value"]
    return variables


def check_panels(infinity, dashboard, variables):
    """Holds the rows of each panel; returns the queries that were sent."""
    rows = {}
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            rows[panel["title"]] = found = infinity.ask(target, variables)
            check(found, f"{panel['title']} has rows")
            for row, column in ((row, column) for row in found for column in target["columns"]):
                check(column["selector"] in row and fits(row[column["selector"]], column["type"]), f"{panel['title']}: {column} of {row}")
    check({"mean": 7, "min": 4.5, "max": 9.5}.items() <= rows["$field"][0].items(), f"the series: {rows['$field']}")
    check(rows["Last in this range"][-1]["last"] == 7, f"the last value: {rows['Last in this range']}")
    check(sum(row["values"] for row in rows["Values stored"]) == 3, f"what is stored: {rows['Values stored']}")
    field = variables["field"]
    wanted = ["from", "to", "count", *(f"{field}.{function}" for function in ("count", "mean", "min", "max", "last"))]
    check(sorted(rows["By day"][0]) == sorted(wanted), f"the columns of CSV: {rows['By day']}")
    check(rows["Active alarms"][0]["severity"] in {"info", "warning", "critical"}, f"the alarms: {rows['Active alarms']}")
    return len(rows)


def main():
    dashboard = json.loads(DASHBOARD.read_text())
    with folder() as work, isobar(work) as url:
        device, key = stage(url)
        infinity = Infinity(url, key)
        variables = check_variables(infinity, dashboard, device)
        asked = check_panels(infinity, dashboard, variables)
        # However far one zooms out.
        series = dashboard["panels"][0]["targets"][0]
        for interval in INTERVALS:
            check(infinity.ask(series, {**variables, "__interval": interval}), f"every {interval}")
        path, headers = request_of(series, {**variables, "__from": "yesterday"})
        status, text = body_of(fetch(url, "GET", path, headers={**headers, **infinity.key}))
        check(status == 400 and "query.from" in text, f"what is no time is refused: {status} {text}")
    print(f"{asked} panels")


main()
