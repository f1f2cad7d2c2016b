"""Dashboards and rules ask for metrics that a running server shows, and promtool reads each expression of theirs."""

import json
import re
import subprocess

import yaml
from server import DEPLOY, ISOBAR, PASSWORD, Administrator, certificate, check, fetch, folder, isobar, metrics, tool, wait_for

DASHBOARD = DEPLOY / "grafana" / "isobar-operations.json"
RULES = DEPLOY / "prometheus" / "isobar-alerts.yaml"
ROWS = ["Traffic", "Latency", "Durability", "Storage", "Workers", "Limits", "Process"]
# What is shown only once something has failed that a check does not bring about.
OF_FAILURES = {"isobar_task_panics_total", "isobar_call_answers_total"}
# Grafana fills these in before Prometheus reads them.
VARIABLES = {"$__rate_interval": "5m", "$instance": ".*"}


def panels(dashboard):
    """Returns all panels but rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard):
    """Returns what the panels ask, as Prometheus sees it."""
    asked = [target["expr"] for panel in panels(dashboard) for target in panel["targets"]]
    for name, value in VARIABLES.items():
        asked = [expression.replace(name, value) for expression in asked]
    return asked


def check_shape(dashboard):
    """Holds what Grafana's import wants of a dashboard, and what keeps panels from lying on each other."""
    ids = [panel["id"] for panel in dashboard["panels"]]
    check(len(ids) == len(set(ids)), "no panel has the id of another")
    check(dashboard["uid"] and dashboard["title"] and dashboard["schemaVersion"] >= 36, "it has a name, and a version of its form")
    check("id" not in dashboard, "it has no id of another Grafana")
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    check(variables["datasource"]["type"] == "datasource", "the data source is a variable")
    taken = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        check(place["x"] + place["w"] <= 24, f"{panel['title']} is within the width")
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        check(not cells & taken, f"{panel['title']} lies on no other")
        taken |= cells
        if panel["type"] != "row":
            sources = [panel["datasource"]] + [target["datasource"] for target in panel["targets"]]
            check(all(source["uid"] == "${datasource}" for source in sources), f"{panel['title']} asks the variable")


def check_expressions(work, asked):
    """Has promtool read each expression."""
    rules = [{"record": f"panel:{place}", "expr": expression} for place, expression in enumerate(asked)]
    path = work / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    ran = subprocess.run([tool("usr", "bin", "promtool"), "check", "rules", "--lint=none", path], capture_output=True, text=True)
    check(ran.returncode == 0, f"promtool reads the dashboard: {ran.stdout}{ran.stderr}")


def make_traffic(url):
    """Does what makes metrics with labels appear: events, refusals, an e-mail."""
    subprocess.run(
        [ISOBAR, "simulate", "--url", url, "--devices", "2", "--rate", "50", "--duration", "1"],
        env={"ISOBAR_PASSWORD": PASSWORD}, capture_output=True, timeout=60, check=True,
    )
    admin = Administrator(url)
    names = {"username": "ana", "email": "ana@dairy.example", "firstName": "Ana", "lastName": "Frost", "company": "Dairy"}
    passwords = {"password": PASSWORD, "passwordConfirmation": PASSWORD}
    admin.post("/v2/users", {**names, **passwords, "role": "basicUser"}, wanted=201)
    fetch(url, "GET", "/v2/auth/verify?emailOrUsername=ana")


def main():
    dashboard = json.loads(DASHBOARD.read_text())
    check_shape(dashboard)
    check_shape(json.loads((DEPLOY / "grafana" / "isobar-devices.json").read_text()))
    check([panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"] == ROWS, "its rows")
    asked = expressions(dashboard)
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    named = set(re.findall(r"\b(?:isobar|process)_[a-z_]+", re.sub(r'"[^"]*"', "", " ".join(asked + rules))))
    with folder() as work:
        check_expressions(work, asked)
        with isobar(work, ISOBAR_BACKUP__SCHEDULE="0 0 1 1 *", ISOBAR_BACKUP__TARGET=str(work)) as url:
            make_traffic(url)
            # The e-mail is sent when its turn comes.
            wait_for("an e-mail is counted", lambda: "isobar_deliveries_total" in metrics(url))
            everything = metrics(url)
            page = fetch(url, "GET", "/metrics")[2]
    with folder() as work:
        cert, key = map(str, certificate(work))
        with isobar(work, ISOBAR_HTTP__TLS_CERTIFICATE=cert, ISOBAR_HTTP__TLS_KEY=key) as url:
            everything |= metrics(url)
    ran = subprocess.run([tool("usr", "bin", "promtool"), "check", "metrics"], input=page, capture_output=True)
    check(ran.returncode == 0, f"promtool reads /metrics: {ran.stderr.decode()}")
    check(named - OF_FAILURES <= everything, f"the server shows each metric: {named - OF_FAILURES - everything}")
    unseen = {name for name in everything if not name.endswith("_count") and not name.endswith("_sum")} - named
    check(unseen <= {"isobar_http_request_duration_seconds_bucket"}, f"the dashboard or a rule has each metric: {unseen}")
    print(f"{len(asked)} expressions, {len(named)} metrics")


main()
