#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Adapters that halftone writes, loaded by PEFT: without a warning, and with the same logits.

    adapters.py test_data_io_observe

Ends with 77 and a sentence without torch, transformers and peft (PyPI).
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "adapters.py"
NEEDED = ("torch", "transformers", "peft")


def run(arguments, **environment):
    done = subprocess.run(arguments, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    return done.returncode, done.stdout


def main():
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"not checked: there is no package {' and no package '.join(missing)} (PyPI: {', '.join(NEEDED)})")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        code, _ = run([sys.argv[1], "--test-case=peft: *"], HALFTONE_SAVED_PEFT=folder)
        if code != 0:
            print("halftone's adapters differ from those of the golden files")
            return 1
        code, text = run([sys.executable, "-B", str(GOLDEN), "--compare", folder], HF_HUB_OFFLINE="1")
        if code != 0 or "14 adapters agree" not in text:
            print("PEFT computes something else from the folders that halftone wrote")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
