#!/usr/bin/env python3
"""What the pages link to is there: each file, and in it the name that [`name`](file) promises."""

import pathlib
import re
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)")
NAME = re.compile(r"`([\w:~.]+)`")  # an identifier or a file, not a line of code
OUTSIDE = re.compile(r"[a-z]+:|#")  # https:, mailto:, a place in the page itself


def faults(page):
    text = page.read_text()
    for link in LINK.finditer(text):
        target = link["target"]
        if OUTSIDE.match(target):
            continue
        file = page.parent / target.partition("#")[0]
        name = NAME.fullmatch(link["text"])
        if not file.exists():
            fault = f"there is no {target}"
        elif name and file.is_file() and not holds(file, name[1]):
            fault = f"{target} does not hold {name[1]}"
        else:
            continue
        yield f"{page.relative_to(REPOSITORY)}:{text.count(chr(10), 0, link.start()) + 1}: {fault}"


def holds(file, name):
    """Each part of `Class::member` as a word of its own: a definition need not spell them together."""
    text = file.read_text()
    return name == file.name or all(re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) for part in name.split("::"))


def main():
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    found = [fault for page in pages for fault in faults(page)]
    print("\n".join(found) or f"the links of {len(pages)} pages hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
