# SPDX-License-Identifier: MIT
"""Reads ncu's `--csv --page raw` output: one row per launch, with each unit's percentage of its peak."""
import csv
import re

# Column, and the names that the metric has had, the first that is there; of several that match one, the largest.
METRICS = [
    ("time", (r"gpu__time_duration\.sum",)),
    ("registers", (r"launch__registers_per_thread",)),
    ("warps %", (r"sm__warps_active\.avg\.pct_of_peak_sustained_active",)),
    ("tensor %", (r"sm__(inst_executed_)?pipe_tensor.*\.pct_of_peak_sustained_active",
                  r"sm__(inst_executed_)?pipe_tensor.*\.pct_of_peak_sustained_elapsed")),
    ("memory %", (r"(gpu__dram_throughput|dram__throughput)\.avg\.pct_of_peak_sustained_elapsed",
                  r"gpu__compute_memory_throughput\.avg\.pct_of_peak_sustained_elapsed")),
    ("issue %", (r"sm__inst_issued\.avg\.pct_of_peak_sustained_active", r"sm__issue_active\.avg\.pct_of_peak_sustained_active",
                 r"smsp__issue_active\.avg\.pct_of_peak_sustained_active", r"sm__inst_executed\.avg\.pct_of_peak_sustained_elapsed")),
]


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def short_name(kernel):
    """flash_attention_kernel<bfloat16, 128> of halftone's launcher with that kernel as its argument."""
    plain = re.sub(r"\((unsigned |signed )?\w+(::\w+)*\)(?=[-\w])|(\w+::)+", "", kernel)  # (int)128, names of namespaces
    found = re.search(r"\w+_kernel", plain)
    if not found:
        return plain[:72]
    end, depth = found.end(), 0
    for end in range(found.end(), len(plain)):
        depth += {"<": 1, ">": -1}.get(plain[end], 0)
        if depth <= 0:
            break
    return plain[found.start():end + (plain[end:end + 1] == ">")][:72]


def read(path):
    """[{"kernel", "time", "tensor %", ...}]; empty if nothing was counted."""
    try:
        with open(path, newline="", errors="replace") as file:
            lines = [line for line in file if line.startswith('"')]
    except OSError:
        return []
    rows = list(csv.reader(lines))
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        return []
    header, units, launches = rows[0], rows[1], rows[2:]
    table = []
    for launch in launches:
        if len(launch) != len(header):
            continue
        row = {"kernel": short_name(launch[header.index("Kernel Name")])}
        for column, names in METRICS:
            for name in names:
                matches = [i for i, metric in enumerate(header) if re.fullmatch(name, metric) and number(launch[i]) is not None]
                if matches:
                    best = max(matches, key=lambda i: number(launch[i]))
                    row[column] = number(launch[best])
                    if column == "time":
                        row[column] *= {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}.get(units[best], 1)
                    break
        table.append(row)
    return table


def markdown(table):
    columns = [column for column, _ in METRICS]
    lines = ["| kernel | " + " | ".join("us" if c == "time" else c for c in columns) + " |", "| --- |" + " ---: |" * len(columns)]
    for row in table:
        cells = ["-" if row.get(c) is None else f"{row[c]:.0f}" if c == "registers" else f"{row[c]:.1f}" for c in columns]
        lines.append(f"| {row['kernel']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
