#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles several sources as one, so that the compiler reads what they include once, and tells which of them its messages speak of.

    tests/tools/together.py join UNIT SOURCE...       writes UNIT: what the sources include, then each of them in a namespace of its
                                                      own. Prints the sources that cannot be in one and are left out
    tests/tools/together.py sources UNIT              prints the sources in UNIT
    tests/tools/together.py attribute UNIT FOLDER     divides what g++, clang++ or nvcc says of UNIT, on standard input, by the
                                                      source that it speaks of: messages about a/b.cpp come into FOLDER/b.said
"""
import os
import re
import sys

# More of namespace halftone, specialisations of its templates, and explicit instantiations of those of a header have no place in
# another namespace.
GLOBAL = re.compile(r'^(?:template <.*> *)?(?:struct|class) (?:ht|halftone)::|^(?:inline )?namespace halftone\b|^(?:extern )?template (?!<)', re.M)
# What comes before an error and says where it is. clang++ and nvcc say behind it what made them come to it.
CONTEXT = re.compile(r"^In file included from |: In [a-z ]+ .*:$|: At global scope:$|:   (?:recursively )?required (?:from|by) |"
                     r":   in .constexpr. expansion of")
FAULT = re.compile(r" (?:error|warning)(?: #[\w-]+)?: ")
REQUESTED = re.compile(r" note: .* requested here$|^ +(?:detected during )?instantiation of .* at line \d+ of ")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def name_of(path):
    return os.path.splitext(os.path.basename(path))[0]


def can_be_joined(path):
    """Whether the source can be in a namespace, and defines no macro that would reach sources after it."""
    text = read(path)
    named = lambda pattern: set(re.findall(pattern, text, re.M))
    return not GLOBAL.search(text) and named(r"^\s*#\s*define\s+(\w+)") <= named(r"^\s*#\s*undef\s+(\w+)") | named(r"!defined\((\w+)\)")


def includes(path):
    """The source's #include lines, each within the conditions that it stands under. A file beside the source gets its whole path."""
    conditions = []
    for word, rest in re.findall(r"^\s*#\s*(\w+)[ \t]*(.*?)\s*$", read(path), re.M):
        if word in ("if", "ifdef", "ifndef"):
            conditions.append([f"#{word} {rest}"])
        elif word in ("elif", "else"):
            conditions[-1].append(f"#{word} {rest}".rstrip())
        elif word == "endif":
            conditions.pop()
        elif word == "include":
            name = re.sub(r'^"(.*?)".*', r"\1", rest)  # <...> is no file's
            beside = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(path)), name))
            rest = f'"{beside}"' if os.path.exists(beside) else rest
            yield "\n".join([*sum(conditions, []), f"#include {rest}", *("#endif" for _ in conditions)])


def joined(paths):
    """The text of a unit. The sources' own headers, "...", may include too few of the library's, <...>, which come before them."""
    lines = sorted(dict.fromkeys(line for path in paths for line in includes(path)), key=lambda line: '#include "' in line)
    names = [re.sub(r"\W", "_", name_of(path)) for path in paths]
    if len(set(names)) < len(names):
        raise SystemExit("together.py: two sources have one name: " + " ".join(paths))
    bodies = [f'namespace of_{name} {{\n#include "{os.path.realpath(path)}"\n}}' for name, path in zip(names, paths)]
    return "\n".join([*lines, *bodies, ""])


def sources_of(unit):
    return re.findall(r'^namespace of_\w+ \{\n#include "(.*)"$', read(unit), re.M)


def attribute(messages, paths):
    """{path: the messages about this source}. A message is about the source whose line its context, its error or a note of what was
    requested names last. One without a context is in that of the message before it."""
    place = re.compile("(" + "|".join(map(re.escape, paths)) + r")(?:[:(]\d|$)")
    said = dict.fromkeys(paths, "")
    message, owner, is_told = "", None, False
    for line in messages.splitlines(keepends=True) + ["In file included from the end"]:
        is_context, is_fault = CONTEXT.search(line), FAULT.search(line)
        if is_told and (is_context or is_fault):
            if owner:
                said[owner] += message
            message, is_told, owner = "", False, None if is_context else owner
        if is_context or is_fault or REQUESTED.search(line):
            found = place.search(line)
            owner = found[1] if found else owner
        message, is_told = message + line, is_told or is_fault
    return {path: text for path, text in said.items() if text}


def main(command="", unit="", *rest):
    if command == "join" and rest:
        left_out = [path for path in rest if not can_be_joined(path)]
        with open(unit, "w", encoding="utf-8") as file:
            file.write(joined([path for path in rest if path not in left_out]))
        sys.stdout.writelines(path + "\n" for path in left_out)
    elif command == "sources" and not rest:
        sys.stdout.writelines(path + "\n" for path in sources_of(unit))
    elif command == "attribute" and len(rest) == 1:
        for path, text in attribute(sys.stdin.read(), sources_of(unit)).items():
            with open(os.path.join(rest[0], name_of(path) + ".said"), "w", encoding="utf-8") as file:
                file.write(text)
    else:
        raise SystemExit(__doc__.rstrip())


if __name__ == "__main__":
    main(*sys.argv[1:])
