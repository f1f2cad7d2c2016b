"""Writes a script for bash that runs the commands of documents, block by block, as somebody pastes them.

    paste.py DOCUMENT… >SCRIPT

Commands are indented by four spaces or more, after an empty line. A comment before them says why they are not run:
`<!-- example: needs a name of your own -->`. Everything else has to succeed, but for a search that finds nothing.
"""

import re
import shlex
import sys

HEAD = """\
shopt -s expand_aliases
failed=0
fails() {
    [[ $1 = 1 && $2 =~ ^grep ]] && return 0
    printf 'FAILED with %s: %s\\n' "$1" "$2" >&2
    failed=$((failed + 1))
}
"""
EXAMPLE = re.compile(r"^\s*<!-- example: (\S.*) -->$")


def blocks(text):
    """Yields each block with the number of its first line, and the reason for which it is not run."""
    lines, found, reason, fenced = text.splitlines() + [""], [], None, False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        before = lines[number - 2].strip() if number > 1 else ""
        if line.startswith("    ") and not fenced and (found or not before or EXAMPLE.match(before)):
            found.append(line)
            continue
        if found:
            yield number - len(found), "\n".join(found), reason
            found, reason = [], None
        if line.strip():
            example = EXAMPLE.match(line)
            reason = example and example.group(1)


def main():
    print(HEAD)
    run = left = 0
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as document:
            text = document.read()
        for number, block, reason in blocks(text):
            if reason:
                left += 1
                continue
            run += 1
            indent = min(len(line) - len(line.lstrip()) for line in block.splitlines() if line.strip())
            block = "\n".join(line[indent:] for line in block.splitlines())
            print(f"printf '%s\\n' {shlex.quote(f'-- {path}:{number}')} {shlex.quote(block)}")
            print(f"trap 'fails $? \"$BASH_COMMAND\"' ERR\neval {shlex.quote(block)}\ntrap - ERR")
    print(f"printf '%s\\n' '{run} blocks were run, {left} are examples'")
    print("exit $((failed > 0))")


main()
