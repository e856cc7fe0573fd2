# SPDX-License-Identifier: MIT
"""The targets on an H100, and whether the rows meet them: products by Hopper's instructions, the rest by Ampere's."""


def rates(rows, kernel, **wanted):
    """Halftone's rows with this kernel and these fields; a field may be a predicate."""
    def fits(row):
        return all(test(row[name]) if callable(test) else row[name] == test for name, test in wanted.items())
    return [row for row in rows if row["kernel"] == kernel and row["engine"].split(",")[0] == "halftone" and row["rate"] and fits(row)]


def extents(row):
    try:
        return [int(n) for n in row["shape"].split()[0].split("x")]
    except ValueError:
        return [0]


def shares(rows, kernel):
    return [row["percent_of_peak"] / 100 for row in rates(rows, kernel)]


def to_peer(rows, kernel, peer, **wanted):
    return [row["ratio_to"][peer] for row in rates(rows, kernel, **wanted) if peer in row["ratio_to"]]


def beside(rows, ours, kernel, engine):
    """The speed of the faster of halftone's kernels alone and with cuBLASLt, divided by that of another engine at the same shape."""
    other = {row["shape"]: row["seconds"] for row in rows if row["kernel"] == kernel and row["engine"] == engine}
    best = {}
    for row in rows:
        if row["kernel"] == ours and row["engine"] in ("halftone", "with cublaslt") and row["shape"] in other and row["seconds"]:
            best[row["shape"]] = min(best.get(row["shape"], row["seconds"]), row["seconds"])
    return [other[shape] / seconds for shape, seconds in best.items()]


def to_neighbour(rows, shape, neighbour):
    odd, even = rates(rows, "matmul", shape=shape, policy="amp_bf16"), rates(rows, "matmul", shape=neighbour, policy="amp_bf16")
    return [odd[0]["rate"] / even[0]["rate"]] if odd and even else []


def large(rows):
    fitting = [row for row in rates(rows, "matmul", policy="amp_bf16") if min(extents(row)) >= 2048 and "off" not in row["shape"]]
    return [row["ratio_to"]["cublaslt"] for row in fitting if "cublaslt" in row["ratio_to"]]


def attention(rows, kernel, size):
    at_16k = lambda shape: shape.startswith("1 x 16384") and f"heads of {size}," in shape
    return [row["rate"] for row in rates(rows, kernel, shape=at_16k)]


def judge(rows):
    """[(target, least, lowest value found or None)]."""
    table = [(f"{kernel}, of the copy", least, shares(rows, kernel)) for kernel, least in
             (("adamw", 0.88), ("layer_norm forward", 0.8), ("layer_norm backward", 0.65), ("softmax forward", 0.8), ("softmax backward", 0.65),
              ("cross_entropy forward", 0.8), ("cross_entropy backward", 0.65), ("adamw_8bit", 0.8), ("reduction, sum of rows", 0.8),
              ("reduction, sum of columns", 0.8), ("reduction, logsumexp of rows", 0.8), ("gather, index_select", 0.8), ("rotary", 0.8))]
    table += [("bf16 products from 2,048 up, of cuBLASLt", 0.9, large(rows)),
              ("a product of 50,257 columns, of that of 50,304", 0.7, to_neighbour(rows, "8192x50257x768 nt", "8192x50304x768 nt")),
              ("a product at odd addresses, of the aligned one", 0.7, to_neighbour(rows, "4096x4096x4096 nt off by 1", "4096x4096x4096 nt"))]
    for size, least in ((64, 300), (128, 340)):
        table += [(f"attention forward at 16k, heads of {size}, TFLOP/s", least, attention(rows, "attention forward", size)),
                  (f"attention backward at 16k, heads of {size}, TFLOP/s", 0.7 * least, attention(rows, "attention backward", size))]
    table += [("the small GPT's captured step, times the uncaptured", 1.3, to_peer(rows, "training step, captured", "the uncaptured step's speed")),
              ("GPT-2's captured step, times PyTorch's eager", 1.0, beside(rows, "GPT-2 step, captured", "GPT-2 step", "torch eager"))]
    return [(target, least, min(found) if found else None) for target, least, found in table]


def markdown(rows):
    lines = ["| target | at least | found | |", "| --- | ---: | ---: | --- |"]
    for target, least, found in judge(rows):
        lines.append(f"| {target} | {least:g} | {'-' if found is None else f'{found:.2f}'} | {'not measured' if found is None else 'held' if found >= least else 'NOT HELD'} |")
    return "\n".join(lines)
