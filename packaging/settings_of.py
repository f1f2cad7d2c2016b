"""Prints the settings of Isobar in the files for compose and Kubernetes, one line a file: its name, a tab, NAME=VALUE each."""

import re

import yaml

VALUES = {"ISOBAR_HOST": "isobar.example.com", "POSTGRES_PASSWORD": "secret", "ISOBAR_ADMIN_PASSWORD": "keep-it-cold"}
# Each with the service that is Isobar.
COMPOSE = {"deploy/compose/compose.yaml": "isobar", "deploy/compose/cluster.yaml": "isobar-1"}
KUBERNETES = "deploy/kubernetes/isobar.yaml"


def compose_settings(name, service):
    with open(name) as file:
        given = yaml.safe_load(file)["services"][service]["environment"]
    return {key: re.sub(r"\$\{(\w+)[^}]*\}", lambda found: VALUES[found[1]], text) for key, text in given.items()}


def main():
    all_settings = [(name, compose_settings(name, service)) for name, service in COMPOSE.items()]
    with open(KUBERNETES) as file:
        pods = [item["spec"]["template"]["spec"] for item in yaml.safe_load_all(file) if item["kind"] == "StatefulSet"]
    kubernetes = {entry["name"]: entry["value"] for entry in pods[0]["containers"][0]["env"]}
    for name, settings in (*all_settings, (KUBERNETES, kubernetes)):
        print(name, " ".join(f"{key}={value}" for key, value in settings.items()), sep="\t")


main()
