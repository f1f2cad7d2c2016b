"""Writes a script for bash that runs the commands of documents, block by block, as somebody pastes them.

    paste.py DOCUMENT… >SCRIPT

Commands are indented by four spaces or more, after an empty line. A comment before them says why they are not run,
`<!-- example: the name is yours -->`, or what one of them ends with and why, `<!-- ends with 1: it asks -->`. All others
have to succeed, but for a search that finds nothing.
"""

import re
import shlex
import sys

HEAD = """\
shopt -s expand_aliases
failed=0
fails() {
    [[ $1 = "$expected" || ($1 = 1 && $2 =~ ^grep) ]] && return 0
    printf 'FAILED with %s: %s\\n' "$1" "$2" >&2
    failed=$((failed + 1))
}
"""
COMMENT = re.compile(r"^\s*<!-- (?:(example)|ends with (\d+)): \S.* -->$")


def blocks(text):
    """Yields each block with the number of its first line, and the comment before it."""
    lines, found, comment, fenced = text.splitlines() + [""], [], None, False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        before = lines[number - 2].strip() if number > 1 else ""
        if line.startswith("    ") and not fenced and (found or not before):
            found.append(line)
            continue
        if found:
            yield number - len(found), "\n".join(found), comment
            found, comment = [], None
        if line.strip():
            comment = COMMENT.match(line)


def main():
    print(HEAD)
    run = left = 0
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as document:
            text = document.read()
        for number, block, comment in blocks(text):
            if comment and comment.group(1):
                left += 1
                continue
            run += 1
            indent = min(len(line) - len(line.lstrip()) for line in block.splitlines() if line.strip())
            block = "\n".join(line[indent:] for line in block.splitlines())
            print(f"printf '%s\\n' {shlex.quote(f'-- {path}:{number}')} {shlex.quote(block)}")
            print(f"expected={comment.group(2) if comment else 0}")
            print("eval", shlex.quote(f"trap 'fails $? \"$BASH_COMMAND\"' ERR\n{block}\ntrap - ERR"))
    print(f"printf '%s\\n' '{run} blocks were run, {left} are examples'")
    print("exit $((failed > 0))")


main()
