"""The OpenAPI document is a sound one, and its examples keep to its own schemas.

Usage: document.py FILE
"""

import json
import sys

from jsonschema import Draft202012Validator, FormatChecker
from openapi_spec_validator import validate

document = json.load(open(sys.argv[1], encoding="utf-8"))
validate(document)

faults, examples, operations = [], 0, 0
for path, methods in document["paths"].items():
    for method, operation in methods.items():
        operations += 1
        bodies = [("body", operation.get("requestBody", {}))]
        bodies += [(status, answer) for status, answer in operation["responses"].items()]
        for what, holder in bodies:
            for media in holder.get("content", {}).values():
                if "example" not in media:
                    continue
                examples += 1
                schema = {"components": document["components"], **media["schema"]}
                validator = Draft202012Validator(schema, format_checker=FormatChecker())
                for error in validator.iter_errors(media["example"]):
                    faults.append(f"{method} {path} {what}: {error.json_path}: {error.message}")

for fault in faults:
    print(fault)
print(f"document: {operations} operations, {examples} examples, {len(faults)} faults")
sys.exit(1 if faults or not examples else 0)
