"""The commands that the manuals have an operator paste are commands of the program, with options that it has."""

import re
import subprocess

from server import ISOBAR, ROOT, check

MANUALS = ["runbook.md", "monitoring.md", "proxy.md", "operations.md", "backup.md"]


def help_of(words):
    """Returns what the program says of a command; none if there is no such command."""
    ran = subprocess.run([ISOBAR, *words, "--help"], capture_output=True, text=True, timeout=60)
    return ran.stdout if ran.returncode == 0 else None


def pasted(text):
    """Returns each call of the program in the blocks of code of a document."""
    lines = [line.split("#")[0] for line in text.splitlines() if line.startswith("    ")]
    return [call.split() for call in re.findall(r"(?:^|&&)\s*isobar\s+([^&|;\n]+)", "\n".join(lines), re.M)]


def main():
    calls = 0
    for manual in MANUALS:
        for words in pasted((ROOT / "docs" / manual).read_text()):
            command = words[:2] if words[0] == "user" else words[:1]
            if command == ["--version"]:
                continue
            said = help_of(command)
            check(said is not None and f" {' '.join(command)}" in said, f"{manual}: isobar {' '.join(words)} is a command")
            for option in [word for word in words if word.startswith("--")]:
                check(re.search(rf"{option}\b", said), f"{manual}: isobar {' '.join(words)} has {option}")
            calls += 1
    check(calls >= 20, f"the manuals have commands: {calls}")
    print(f"{calls} commands")


main()
