#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""GPT-2 with 124 million parameters, random ones, as transformers makes, saves and computes it: halftone's logits have to be the same
within a computed bound, and transformers' from the folder that halftone writes have to have the same bits.

    gpt2_124m.py test_data_io_observe

Takes 1.5 GB of temporary files. Ends with 77 and a sentence without torch and transformers (PyPI).
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "gpt2.py"
CASE = "gpt2: the logits of a model of 124 million parameters"


def run(arguments, **environment):
    done = subprocess.run(arguments, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout)
    return done.returncode, done.stdout


def main():
    missing = [name for name in ("torch", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"not checked: there is no package {' and no package '.join(missing)} (PyPI: torch, transformers)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        code, _ = run([sys.executable, str(GOLDEN), "--large", folder])
        if code != 0:
            print("transformers did not make the folder")
            return 1
        code, text = run([sys.argv[1], "--no-skip", f"--test-case={CASE}"], HALFTONE_GPT2=folder)
        if code != 0 or "off by" not in text:
            print("halftone's logits differ, or were not compared")
            return 1
        code, text = run([sys.executable, str(GOLDEN), "--compare", folder, str(pathlib.Path(folder) / "written")])
        if code != 0 or "the same bits" not in text:
            print("transformers computes something else from the folder that halftone wrote")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
