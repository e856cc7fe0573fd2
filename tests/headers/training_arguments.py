#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that ht::training_arguments has the fields of transformers' TrainingArguments (tests/golden/training_arguments.txt) with their
defaults, or docs/training.md names them: in its table of fields that are not there, in the one of other defaults, or as halftone's own.

    tests/headers/training_arguments.py
"""
import fnmatch
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTHING = {"", "0", "false", "None", "False"}  # a default that turns a field off, in either language


def ours():
    """The fields of the struct with their defaults, as C++ writes them; a field without one has its type's, empty."""
    text = (ROOT / "include/halftone/train/training_arguments.hpp").read_text()
    struct = re.search(r"^struct training_arguments \{\n(.*?)^\};", text, re.S | re.M).group(1)
    struct = re.sub(r"//.*", "", struct)
    return {name: (value or "") for name, value in re.findall(r"(\w+)\s*(?:\{\}|=\s*([^;]+))?;", struct)}


def same(theirs, own):
    if theirs in NOTHING and own in NOTHING:
        return True
    own = own.split("::")[-1].strip('"')  # an enumerator has the name that is a string there
    theirs = theirs.strip("'")
    try:
        return float(theirs) == float(own)
    except ValueError:
        return theirs == own


def rows(text, sentence):
    """The names in the first column of the table behind that sentence."""
    lines = text.split(sentence, 1)[1].split("\n|", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return {name for line in lines for name in re.findall(r"`([\w.*]+)`", line.split("|")[1])}


def main():
    golden = (ROOT / "tests/golden/training_arguments.txt").read_text().splitlines()[1:]
    theirs = dict(line.split(" ", 1) for line in golden)
    text = (ROOT / "docs/training.md").read_text()
    missing, other, own_names = (rows(text, sentence) for sentence in (
        "that `ht::training_arguments` does not have, with the reason:", "Other defaults than there:", "What is halftone's own is"))
    own, faults = ours(), []
    for name, default in theirs.items():
        absent = any(fnmatch.fnmatch(name, pattern) for pattern in missing)
        if name in own and absent:
            faults.append(f"docs/training.md says that there is no {name}, and there is")
        elif name not in own and not absent:
            faults.append(f"transformers has {name}, and neither ht::training_arguments nor docs/training.md's table of what is not there")
        elif name in own and same(default, own[name]) == (name in other):
            faults.append(f"the default of {name} is {own[name] or 'empty'} here and {default} there; docs/training.md " +
                          ("lists it as another" if name in other else "does not say so"))
    for pattern in sorted(missing):
        if not fnmatch.filter(theirs, pattern):
            faults.append(f"docs/training.md says that there is no {pattern}, which transformers does not have either")
    own_groups = {name.split(".")[0] for name in own_names}
    for name in own:
        if name not in theirs and name not in own_groups and name not in other:
            faults.append(f"transformers has no {name}, and docs/training.md does not say that it is halftone's own")
    for fault in faults:
        print(fault)
    print(f"{len(theirs)} fields of transformers, {len(own)} of halftone; {len(faults)} faults")
    return bool(faults)


sys.exit(main())
