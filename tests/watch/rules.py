"""The alert rules: promtool takes them and their tests, each fires in one of these, and each has its paragraph in the runbook."""

import re
import subprocess

import yaml
from server import DEPLOY, ROOT, check, tool

PROMTOOL = tool("usr", "bin", "promtool")
RULES = DEPLOY / "prometheus" / "isobar-alerts.yaml"
TESTS = DEPLOY / "prometheus" / "isobar-alerts.test.yaml"
SEVERITIES = {"critical", "warning"}


def alerts():
    """Returns the rules."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def told_in_the_runbook():
    """Returns the headings of the runbook's part about alerts."""
    text = (ROOT / "docs" / "runbook.md").read_text()
    part = text.split("\n# Alerts\n", 1)[1].split("\n# ", 1)[0]
    return re.findall(r"^## (\w+)$", part, re.M)


def fire_in_tests():
    """Returns the alerts that fire in some test."""
    named = set()
    for scene in yaml.safe_load(TESTS.read_text())["tests"]:
        for question in scene.get("promql_expr_test", []):
            for sample in question["exp_samples"]:
                named.update(re.findall(r'alertname="(\w+)"', sample["labels"]))
    return named


def main():
    for command in (["check", "rules", RULES], ["check", "config", DEPLOY / "prometheus" / "prometheus.yaml"], ["test", "rules", TESTS]):
        ran = subprocess.run([PROMTOOL, *command], capture_output=True, text=True)
        check(ran.returncode == 0, f"promtool {command}: {ran.stdout}{ran.stderr}")
    names = [rule["alert"] for rule in alerts()]
    check(len(names) == len(set(names)), "no alert has the name of another")
    told = told_in_the_runbook()
    check(names == told, f"the runbook tells of the alerts, in their order: {set(names) ^ set(told) or 'another order'}")
    for rule in alerts():
        name, notes = rule["alert"], rule["annotations"]
        check(rule["labels"]["severity"] in SEVERITIES, f"{name} has a severity")
        check(notes["summary"].endswith(".") and len(notes["summary"]) > 20, f"{name} says what is the matter in a sentence")
        check(notes["runbook_url"] == f"/usr/share/doc/isobar/docs/runbook.md#{name.lower()}", f"{name} leads to its paragraph")
    silent = set(names) - fire_in_tests()
    check(not silent, f"each alert fires in a test: {silent}")
    print(f"{len(names)} alerts")


main()
