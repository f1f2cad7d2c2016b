"""Prints the settings of Isobar in the files for compose and Kubernetes, one line a file: its name, a tab, NAME=VALUE each."""

import re

import yaml

VALUES = {"ISOBAR_HOST": "isobar.example.com", "POSTGRES_PASSWORD": "secret", "ISOBAR_ADMIN_PASSWORD": "keep-it-cold"}
COMPOSE = "deploy/compose/compose.yaml"
KUBERNETES = "deploy/kubernetes/isobar.yaml"


def main():
    with open(COMPOSE) as file:
        given = yaml.safe_load(file)["services"]["isobar"]["environment"]
    compose = {name: re.sub(r"\$\{(\w+)[^}]*\}", lambda found: VALUES[found[1]], text) for name, text in given.items()}
    with open(KUBERNETES) as file:
        pods = [item["spec"]["template"]["spec"] for item in yaml.safe_load_all(file) if item["kind"] == "StatefulSet"]
    kubernetes = {entry["name"]: entry["value"] for entry in pods[0]["containers"][0]["env"]}
    for name, settings in ((COMPOSE, compose), (KUBERNETES, kubernetes)):
        print(name, " ".join(f"{key}={value}" for key, value in settings.items()), sep="\t")


main()
