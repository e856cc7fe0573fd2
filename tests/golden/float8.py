#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes float8.txt: ml_dtypes' conversions from and to float8_e4m3fn and float8_e5m2.

    python3 tests/golden/float8.py            # needs PyPI's ml_dtypes and numpy; the table committed is of ml_dtypes 0.6.0

All 256 codes as floats, and the codes of all 65,536 patterns of float16 and bfloat16. ml_dtypes does not saturate; "stops"
are the codes of its conversions after numpy.clip to the largest numbers, which leaves NaNs alone.
"""
import pathlib

import ml_dtypes
import numpy as np

TYPES = {"float8_e4m3": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
SOURCES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def runs(codes):
    """count*code for each run of equal codes."""
    ends = np.append(np.flatnonzero(np.diff(codes)), len(codes) - 1)
    starts = np.append(0, ends[:-1] + 1)
    return " ".join(f"{e - s + 1}*{codes[e]:02x}" for s, e in zip(starts, ends))


def main():
    lines = []
    with np.errstate(all="ignore"):
        for name, eight in TYPES.items():
            wide = np.arange(256, dtype=np.uint8).view(eight).astype(np.float32)
            lines.append(f"values {name} " + " ".join("nan" if np.isnan(x) else float(x).hex() for x in wide))
            largest = float(ml_dtypes.finfo(eight).max)
            for source, sixteen in SOURCES.items():
                x = np.arange(65536, dtype=np.uint16).view(sixteen)
                clipped = np.clip(x.astype(np.float32), -largest, largest)
                lines.append(f"goes_on {name} {source} " + runs(x.astype(eight).view(np.uint8)))
                lines.append(f"stops {name} {source} " + runs(clipped.astype(eight).view(np.uint8)))
    header = f"""# SPDX-License-Identifier: MIT
# Written by float8.py with ml_dtypes {ml_dtypes.__version__}. values: what each code is worth. goes_on: the codes of all patterns of a type of two
# bytes in order, as count*code; stops: the same of patterns clipped to the largest numbers first.
"""
    pathlib.Path(__file__).with_suffix(".txt").write_text(header + "\n".join(lines) + "\n")


main()
