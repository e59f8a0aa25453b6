#!/usr/bin/env python3
"""docs/messages.md out of the interfaces in messages/: actor -> handlers -> replies -> who sends.

    messages/make_map.py            writes it
    messages/make_map.py --check    exit code 1 when it is not what the interfaces say
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "messages.md"
PROCESSES = [("gateway", "Gateway"), ("supervisor", "Supervisor"), ("sandbox", "Sandbox runtime"), ("introspection", "Every process"), ("directory", "Who looks at a process"), ("operator", "Who looks at the gateway")]
ALIAS = re.compile(r"^using (\w+) =\s*(?:(\w+)::extend|caf::typed_actor)<", re.M)
PLAIN = {"std::string": "text", "std::int32_t": "number", "std::int64_t": "number", "std::uint32_t": "number", "std::uint64_t": "number", "bool": "yes or no", "void": "done"}


def balanced(text, start):
    """The end of the angle bracket that opens at `start`."""
    depth = 0
    for at in range(start, len(text)):
        if text.startswith("//", at) or depth < 0:
            raise SystemExit(f"comment inside of a type: {text[at:at + 60]}")
        depth += {"<": 1, ">": -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise SystemExit("an interface does not end")


def split(text):
    """Arguments of a template, at the commas of its own level."""
    out, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += {"<": 1, ">": -1}.get(char, 0)
        if char == "," and depth == 0:
            out.append(text[begin:at].strip())
            begin = at + 1
    return [part for part in out + [text[begin:].strip()] if part]


def shown(kind):
    """A type as a reader of the page needs it."""
    kind = re.sub(r"\s+", " ", kind).strip()
    inner = re.fullmatch(r"(?:const )?([\w:]+)<(.*)>", kind)
    if inner:
        name, parts = inner.group(1).split("::")[-1], [shown(part) for part in split(inner.group(2))]
        if name in ("Ask", "Reply", "Handed", "shared_ptr", "atom_constant"):
            return parts[0].removeprefix("const ")
        return {"vector": f"list of {parts[0]}", "map": " by ".join(reversed(parts))}.get(name, f"{name} of {', '.join(parts)}")
    kind = kind.removeprefix("const ")
    return PLAIN.get(kind, kind.split("::")[-1])


def handlers(body):
    """(comment, message, answer) of each handler; a comment holds until the next one."""
    comment, fresh, out = [], False, []
    at = 0
    while at < len(body):
        line = re.compile(r"\s*//\s?(.*)\n").match(body, at)
        if line:
            comment = comment + [line.group(1)] if fresh else [line.group(1)]
            fresh, at = True, line.end()
            continue
        fresh = False
        found = re.compile(r"[\s,]*caf::(replies_to|reacts_to)<").match(body, at)
        if not found:
            at = re.compile(r"[^\n]*\n?").match(body, at).end() or at + 1
            continue
        end = balanced(body, found.end() - 1)
        message, answer, at = body[found.end():end], "", end + 1
        if found.group(1) == "replies_to":
            opened = re.compile(r"::with<\s*").match(body, at)
            end = balanced(body, opened.end() - 1 if body[opened.end() - 1] == "<" else body.index("<", at))
            answer, at = body[body.index("<", at) + 1:end], end + 1
        out.append((" ".join(comment), split(message), split(answer)))
    return out


def actors(text):
    for found in ALIAS.finditer(text):
        end, depth = found.end(), 1
        while depth:
            if text.startswith("//", end):
                end = text.index("\n", end)
            depth += {"<": 1, ">": -1}.get(text[end], 0)
            end += 1
        about = []
        for line in reversed(text[:found.start()].splitlines()):
            if not line.startswith("///"):
                break
            about.insert(0, line[3:].strip())
        yield found.group(1), found.group(2), " ".join(about), handlers(text[found.end():end - 1] + "\n")


def sender_of(comment):
    """("SandboxIndex, once for a new sandbox", "Stored first, ...") of a handler's comment."""
    found = re.match(r"From (.*?)(?:[.:]\s+|[.:]?$)(.*)", comment)
    return (found.group(1), found.group(2)) if found else ("", comment)


def cell(text):
    return text.replace("|", "\\|").strip() or "-"


def message_of(parts):
    words = [re.sub(r"_atom$", "", part) if part.endswith("_atom") else shown(part) for part in parts]
    return f"`{words[0]}`" + (f" ({', '.join(words[1:])})" if len(words) > 1 else "")


def page():
    known, everything = set(), []
    for name, title in PROCESSES:
        text = (ROOT / "messages" / f"{name}.hpp").read_text()
        found = list(actors(text))
        known |= {actor for actor, *_ in found}
        everything.append((name, title, text, found))
    out = ["# The messages of all actors", "",
           "Made from the interfaces in [messages/](../messages/) by `messages/make_map.py`; a test fails when it is not current. Do not edit it here.",
           "One section a process, one table an actor: what it takes, from whom, what that does, and what comes back.",
           "Every actor that extends `Introspectable` also answers `introspect`; what it says of itself is on the operator interface ([live-map.md](live-map.md)).", ""]
    for name, title, text, found in everything:
        out += [f"## {title}", "", f"[messages/{name}.hpp](../messages/{name}.hpp)", ""]
        drawing = [line[3:] for line in text.splitlines() if line.startswith("//   ")]
        if drawing:
            out += ["```", *[line.rstrip() for line in drawing], "```", ""]
        out += ["| actor | messages | hears from | restart |", "|---|---|---|---|"]
        for actor, _, about, lines in found:
            senders = sorted({word for comment, *_ in lines for word in re.findall(r"\b[A-Z]\w+", sender_of(comment)[0]) if word in known and word != actor})
            restart = re.search(r"Restart: (.*?)\.(?:\s|$)", about)
            out.append(f"| [{actor}](#{actor.lower()}) | {len(lines)} | {', '.join(senders) or '-'} | {cell(restart.group(1)) if restart else '-'} |")
        out.append("")
        for actor, _, about, lines in found:
            nameless = [message_of(message) for comment, message, _ in lines if not sender_of(comment)[0]]
            if nameless and not actor.endswith("Sink"):
                raise SystemExit(f"messages/{name}.hpp: {actor} does not say who sends {', '.join(nameless)}: begin its comment with 'From'")
            out += [f"### {actor}", ""]
            if about:
                out += [about, ""]
            if not lines:
                continue
            out += ["| message | from | what it does | answer |", "|---|---|---|---|"]
            for comment, message, answer in lines:
                sender, what = sender_of(comment)
                out.append(f"| {message_of(message)} | {cell(sender)} | {cell(what)} | {cell(', '.join(shown(part) for part in answer))} |")
            out.append("")
    return "\n".join(out).rstrip() + "\n"


def main():
    text = page()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text)
        return 0
    if TARGET.exists() and TARGET.read_text() == text:
        print(f"{TARGET.relative_to(ROOT)} is current: {text.count(chr(10) + '### ')} actors, {text.count('| `')} messages")
        return 0
    print(f"{TARGET.relative_to(ROOT)} is not what messages/*.hpp say: run messages/make_map.py and commit what it writes", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
