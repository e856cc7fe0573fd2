#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The ids of 100 MB of texts by 13 tokenizers of up to 60,000 tokens that tokenizers trains on these texts: halftone's have to be the
same. Texts are this repository's, those of Debian's packages that are there (the King James text of bible-kjv, scripts of Perl, locales, other
languages' manuals), and random characters, blanks, digits and added tokens side by side.

    tokenizers.py test_data_io_observe [MEGABYTES]

Takes a minute for each 5 MB, most of it tokenizers'. Ends with 77 and a sentence without tokenizers (PyPI).
"""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASE = "tokenizer: many texts of many tokenizers*"
PATTERNS = [(ROOT, "docs/*.md"), (ROOT, "include/halftone/**/*.hpp"), (pathlib.Path("/usr/share/perl"), "*/*.pm"),
            (pathlib.Path("/usr/share/perl"), "*/unicore/*.txt"), (pathlib.Path("/usr/share/i18n/locales"), "*"),
            (pathlib.Path("/usr/share/doc"), "*/README*"), (pathlib.Path("/usr/share/man"), "*/man1/*")]


def main():
    if importlib.util.find_spec("tokenizers") is None:
        print("not checked: there is no package tokenizers (PyPI)")
        return 77
    files = [str(f) for folder, pattern in PATTERNS for f in sorted(folder.glob(pattern))[:300] if f.is_file() and f.suffix != ".gz"]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as king_james:
        if shutil.which("bible"):
            text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout
            for first in range(0, len(text), 65536):  # as many as count among the other files
                files.append(str(pathlib.Path(king_james) / str(first)))
                pathlib.Path(files[-1]).write_bytes(text[first:first + 65536])
        else:
            print("without the King James text: there is no bible (Debian's bible-kjv)")
        made = subprocess.run([sys.executable, str(ROOT / "tests/golden/tokenizer.py"), "--large", folder, sys.argv[2] if len(sys.argv) > 2 else "100", *files])
        if made.returncode != 0:
            print("tokenizers did not make the ids")
            return 1
        done = subprocess.run([sys.argv[1], f"--test-case={CASE}"], env={**os.environ, "HALFTONE_TOKENIZERS": folder},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(done.stdout)
        if done.returncode != 0 or "bytes are equal" not in done.stdout:
            print("halftone's ids differ, or were not compared")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
