#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes training_arguments.txt: the fields of transformers' TrainingArguments, with their defaults.

    python3 tests/golden/training_arguments.py           # needs PyPI's transformers; the fields committed are those of 5.24

A line: name and default, as Python writes it.
"""
import dataclasses
import pathlib

import transformers

lines = [f"# transformers {transformers.__version__}"]
for field in dataclasses.fields(transformers.TrainingArguments):
    default = field.default if field.default is not dataclasses.MISSING else field.default_factory()
    lines.append(f"{field.name} {default!r}")
pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")
