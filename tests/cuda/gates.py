#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the machine code of hot GPU kernels, without a GPU: disassembles the objects that tests/cuda/compile.sh leaves and compares them
with the committed table.

    tests/cuda/gates.py --objects FOLDER [--complete]         exit code 0: all is well; 1: prints the faults; 77: a tool is missing
    tests/cuda/gates.py --objects FOLDER --write FILE.json    writes a new table, and FILE.md for readers

With any compiler: no spilled registers and no local memory; no generic loads or stores; and an inner loop with as many
multiplications as the tile sizes imply. With the compiler of the committed table also: registers, which the hardware allocates in
units of eight; instructions and shared loads per multiplication on the main path of the loop, at most 2 % more; and the number of
global accesses of 16 bytes.

Without --complete the kernels whose objects are not there are left out.

cuobjdump and nvdisasm are those of the toolkit, or of PyPI's packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm (which may be newer
than the compiler) in this Python; CUOBJDUMP and NVDISASM name others. Needs c++filt, too.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
import machine_code

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMITTED = os.path.join(ROOT, "bench", "results", "gpu_code_nvcc13.json")
HEAD_SIZES = (32, 64, 96, 128)


class hot_kernel:
    """A kernel and its name. `turn`: the number of a warp's multiply instructions, or of a thread's in float, in one iteration of
    the loop; several numbers if the compiler may unroll the loop. `spilled`: the bytes or accesses of local memory that it may
    have, 0 but for named exceptions."""

    def __init__(self, label, file, name, turn=(), is_whole=True, unit="HMMA", spilled=0):
        self.label, self.file, self.name, self.turn, self.unit, self.spilled = label, file, name, turn, unit, spilled
        self.is_whole = is_whole  # whole chunks of 16 bytes come into the loop, else elements

    def multiplies(self, i):
        return i.word == self.unit

    def brings(self, i):
        if self.unit == "HGMMA":  # copies are another warp's, and what they say to this one a barrier
            return i.word == "SYNCS"
        return i.word == "LDGSTS" or i.word in ("LDG", "LD") and i.is_wide() == self.is_whole


def products():
    """Tiles as in kernel/matmul/device.hpp. Two by two warps share a tile, and each multiplies 16 x 8 x 32 bytes."""
    result = "pack<>, pack<matmul_result<argument<0>, {}>>"
    gelu = ("pack<column_operand<float>>, pack<matmul_result<unary<short_form<gelu, bfloat16>, "
            "binary<add, argument<0>, argument<1>>>, bfloat16>>")

    def by_units(label, compute, stored, side, stages, passage, epilogue):
        depth, of = 64 // stored, {"tfloat32": "float"}.get(compute, compute)
        turn = (side // 2 // 16) * (side // 2 // 8) * (depth * stored // 32)
        return hot_kernel(f"product {label}", "products",
                          f"matrix_unit_kernel<{compute}, matrix_unit_tiling<{side}, {side}, {depth}, 2, 2, {stages}>, "
                          f"(panel_load){passage}, {of}, {of}, {epilogue}>", (turn,), passage == 0)

    for compute, short, stored, out in (("bfloat16", "bf16", 2, "bfloat16"), ("float16", "fp16", 2, "float"),
                                        ("tfloat32", "tf32", 4, "float")):
        epilogue = result.format(out)
        yield by_units(f"{short}, tiles of 128", compute, stored, 128, 3, 0, epilogue)
        yield by_units(f"{short}, tiles of 64", compute, stored, 64, 4, 0, epilogue)
        yield by_units(f"{short}, unaligned", compute, stored, 64, 2, 1, epilogue)
    yield by_units("bf16, tiles of 128, bias and gelu", "bfloat16", 2, 128, 3, 0, gelu)
    for across, out in ((192, "bfloat16"), (256, "float")):  # 64 deep, 16 at a time
        yield hot_kernel(f"product bf16 by warpgroups, tiles of 128x{across}", "warpgroups",
                         f"warpgroup_kernel<bfloat16, warpgroup_tiling<{across}, 4>, tensor_map, {result.format(out)}>", (4,),
                         unit="HGMMA")
    for side in (128, 64):  # 8 x 8 sums of a thread, 8 deep
        yield hot_kernel(f"product fp32, tiles of {side}", "products",
                         f"multiply_add_kernel<float, multiply_add_tiling<{side}, {side}>, float, float, "
                         f"{result.format('float')}>", (8 * 8 * 8,), unit="FFMA")
    yield hot_kernel("product fp32, sums of parts", "products", f"finish_kernel<{result.format('float')}>")
    yield hot_kernel("copy of unaligned rows, 16 bits", "products", "aligned_copy_kernel<unsigned short>")
    yield hot_kernel("copy along depth, fp8", "products", "along_depth_kernel<float8_e4m3>")


def attention():
    """Tiles as in kernel/attention/device.hpp; two products forward, three by queries and four by keys backward."""
    forward = {(2, 32): (2, 4, 64), (2, 64): (2, 4, 64), (2, 96): (2, 4, 64), (2, 128): (2, 4, 48),
               (2, 256): (1, 8, 64), (4, 64): (2, 4, 32), (4, 128): (1, 4, 32), (4, 256): (1, 4, 16)}
    backward = {(2, 32): (2, 4, 64), (2, 64): (2, 4, 64), (2, 96): (1, 4, 32), (2, 128): (1, 4, 32),
                (2, 256): (1, 8, 16), (4, 64): (2, 4, 32), (4, 128): (1, 4, 16), (4, 256): (1, 4, 16)}
    wide = {2: (4, 32), 4: (2, 16)}  # pairs of warps, streamed rows; each warp of a pair has two of the four products

    for kind, short, size in (("bfloat16", "bf16", 2), ("float16", "fp16", 2), ("float", "tf32", 4)):
        for head in HEAD_SIZES + (256,):
            if (size, head) not in forward or short == "fp16" and head not in (64, 128):
                continue
            file = "attention_tf32" if (size, head) == (4, 256) else "attention"
            rows, warps, keys = forward[size, head]
            once = lambda products, rows, streamed: products * rows * (streamed // 8) * (head * size // 32)
            by_sixteen = lambda products, rows, streamed: (once(products, rows, streamed), once(products, rows, 16))
            yield hot_kernel(f"attention {short}, {head}, forward", file,
                             f"flash_attention_kernel<{kind}, {head}, {rows}, {warps}, {keys}>", (once(2, rows, keys),))
            rows, warps, streamed = backward[size, head]
            slopes = f"flash_attention_backward_kernel<{kind}, {head}, {rows}, {warps}, {streamed}, (attention_side)"
            yield hot_kernel(f"attention {short}, {head}, backward by queries", file, slopes + "0>",
                             by_sixteen(3, rows, streamed))
            if head < 256:
                by_keys, products = slopes + "1>", 4
            else:
                pairs, streamed = wide[size]
                by_keys, products, rows = f"wide_attention_backward_kernel<{kind}, {head}, {pairs}, {streamed}>", 2, 1
            yield hot_kernel(f"attention {short}, {head}, backward by keys", file, by_keys,
                             by_sixteen(products, rows, streamed))
    yield hot_kernel("attention tf32, 256, forward, less shared memory", "attention_tf32",
                     "flash_attention_kernel<float, 256, 1, 2, 16>", (2 * (16 // 8) * (256 * 4 // 32),))
    yield hot_kernel("attention bf16, terms of queries", "attention", "query_terms_kernel<bfloat16, 8>")
    # Three warpgroups have 160 registers a thread, two have 240. Their sums and products take nearly all of the 160: a position and
    # a phase are read from local memory, 9 accesses beside 12 multiplications and some 480 other instructions once around. An H200
    # reaches 442 TFLOP/s with it (bench/results/gpu_h200).
    for head, groups, stages, turns in ((64, 2, 4, "true"), (64, 3, 4, "true"), (128, 2, 2, "true")):  # 128 keys, 16 at a time
        yield hot_kernel(f"attention bf16, {head}, forward by {groups} warpgroups", "attention_warpgroups",
                         f"warpgroup_attention_kernel<bfloat16, warpgroup_attention_tiling<{head}, {groups}, {stages}, {turns}>, tensor_map>",
                         (head // 16 + 128 // 16,), unit="HGMMA", spilled=56 if groups == 3 else 0)


def rows():
    """For each operation: a row per warp, per block and per wide block, and rows of any width; vectors of 16 bytes. The norms'
    backward pass has blocks of 256 threads, and no wide ones if it reads rows once."""
    teams = {"a warp": (32, (4, 8)), "a block": (128, (4, 8)), "a wide block": (512, (4, 4)), "any": (256, (0, 0))}
    stages = {("a warp", 0): 2, ("a warp", 1): 1, ("a block", 0): 2, ("a block", 1): 1}
    for kind, short, n, wide in (("bfloat16", "bf16", 8, 0), ("float", "fp32", 4, 1)):
        for team, (threads, held) in teams.items():
            tail = f"{n}, {threads}, {held[wide]}>"
            for name in ("softmax", "softmax_backward"):
                yield hot_kernel(f"{name.replace('_', ' ')} {short}, {team}", "rows",
                                 f"{name}_kernel<{kind}, {kind}, (softmax_form)0, {tail}")
            for name in ("layer_norm", "rms_norm"):
                words, centred = name.replace("_", " "), "true" if name == "layer_norm" else "false"
                of = f"norm_row<{centred}>, {kind}, float, {kind}, "
                yield hot_kernel(f"{words} {short}, {team}", "rows", f"norm_kernel<{centred}, {kind}, float, {kind}, {tail}")
                backward = f"{n}, 256, {held[wide] // 2}" if team == "a block" else tail[:-1]
                yield hot_kernel(f"{words} dx {short}, {team}", "rows", f"norm_dx_kernel<{of}{backward}>")
                if (team, wide) in stages:
                    yield hot_kernel(f"{words} backward {short}, {team}", "rows",
                                     f"norm_piece_kernel<{of}{backward}, {stages[team, wide]}>")
            if team in ("a warp", "any"):
                yield hot_kernel(f"cross entropy {short}, {team}", "losses", f"cross_entropy_kernel<{kind}, {tail}")
                yield hot_kernel(f"cross entropy backward {short}, {team}", "losses",
                                 f"cross_entropy_backward_kernel<{kind}, {kind}, {n}, {threads}>")
        for words, centred in (("layer norm", "true"), ("rms norm", "false")):
            yield hot_kernel(f"{words} {short}, sums over rows", "rows",
                             f"norm_sums_kernel<norm_row<{centred}>, {kind}, float, {kind}, {n}>")
        yield hot_kernel(f"sums of columns {short}", "losses", f"column_sum_kernel<{kind}, {n}>")


def elements():
    for access, what in enumerate(("vectors", "elements")):
        to = f"(run_access){access}>"
        state = "(rounding)0, (rounding)0, float, {}, float, {}, " + to
        for label, name in (("AdamW fp32, bf16 gradients", "optimizer_step_kernel<adamw_rule, " + state.format("bfloat16", "float")),
                            ("AdamW fp32, moment of bf16", "optimizer_step_kernel<adamw_rule, " + state.format("float", "bfloat16")),
                            ("SGD fp32", "optimizer_step_kernel<sgd_rule, " + state.format("float", "float")),
                            ("squares and overflow bf16", "chunk_squares_kernel<bfloat16, " + to),
                            ("squares and overflow fp32", "chunk_squares_kernel<float, " + to)):
            yield hot_kernel(f"{label}, {what}", "updates", name)
        yield hot_kernel(f"dropout bf16 to fp32, {what}", "pointwise", f"dropout_kernel<4, (run_access){access}, bfloat16, float>")
    for n, what in ((8, "vectors"), (1, "elements")):
        yield hot_kernel(f"embedding bf16, {what}", "pointwise", f"embedding_kernel<bfloat16, bfloat16, {n}>")
        yield hot_kernel(f"embedding gradient bf16, {what}", "pointwise",
                         f"embedding_sums_kernel<embedding_runs<bfloat16, float, {n}>>")
        yield hot_kernel(f"sum of two bf16, {what}", "model",
                         f"map_kernel<{n}, pack<binary<add, argument<0>, argument<1>>>, pack<map_output<bfloat16>>, "
                         "pack<map_input<bfloat16, (map_access)0>, map_input<bfloat16, (map_access)0>>>")
        yield hot_kernel(f"bf16 to fp8, {what}", "float8",
                         f"map_kernel<{n}, pack<external<saturation<float8_e4m3>, argument<0>>>, "
                         "pack<map_output<float8_e4m3>>, pack<map_input<bfloat16, (map_access)0>>>")


def figures(hot, kernel):
    """The figures of the machine code, and the faults that do not depend on the compiler."""
    touching = [i for i in kernel.code if i.is_global()]
    row = {"kernel": hot.label, "architecture": kernel.architecture, "registers": kernel.registers,
           "instructions": len(kernel.code), "local": max(kernel.stack, sum(i.is_local() for i in kernel.code)),
           "generic": sum(i.is_generic() for i in kernel.code),
           "wide_percent": round(100 * sum(i.is_wide() for i in touching) / max(1, len(touching)), 1)}
    faults = []
    if row["local"] > hot.spilled:
        faults.append(f"uses local memory: {row['local']} bytes or accesses, where {hot.spilled or 'none'} may spill")
    if row["generic"]:
        faults.append(f"{row['generic']} loads or stores do not know that their memory is global")
    if hot.turn:
        ways = kernel.loops(hot.turn, hot.multiplies, hot.brings)
        if not ways:
            faults.append(f"no loop multiplies {' or '.join(map(str, hot.turn))} times once around, as its tiles' sizes say")
            return row, faults
        # The layouts' loops are alike, or the worst one counts.
        share = lambda way, is_meant: sum(map(is_meant, way)) / sum(map(hot.multiplies, way))
        row |= {"unit": hot.unit, "turn": sum(map(hot.multiplies, ways[0])), "loops": len(ways),
                "instructions_per_multiplication": round(max(share(w, lambda i: True) for w in ways), 3),
                "shared_reads_per_multiplication": round(max(share(w, lambda i: i.word in ("LDSM", "LDS") and
                                                                   i.guard != "!PT") for w in ways), 3)}
    return row, faults


def compare(row, before):
    """The figures that are worse than in the committed table."""
    limits = {"registers": (before["registers"] + 7) // 8 * 8}
    for key in ("instructions_per_multiplication", "shared_reads_per_multiplication"):
        if key in before:
            limits[key] = round(1.02 * before[key], 3)
    faults = [f"{key.replace('_', ' ')}: {row[key]}, where {limit} are allowed"
              for key, limit in limits.items() if row.get(key, 0) > limit]
    if row["wide_percent"] < before["wide_percent"] - 1:
        faults.append(f"{row['wide_percent']} % of the global accesses move 16 bytes, of {before['wide_percent']} % before")
    return faults


def table(rows, compiler):
    """The table for readers: each figure on sm_80, then on sm_90."""
    lines = [f"# The machine code of the GPU's hot kernels ({compiler})", "",
             "Written by tests/cuda/gates.py, which holds it. Each cell has sm_80 and sm_90, or sm_90a alone. A turn: multiplications of one",
             "warp (HMMA), of a warpgroup (HGMMA) or one thread (FFMA), once around the main loop, as the tiles' sizes say; for each of them the",
             "instructions and the reads of shared memory (LDSM, LDS) on the hot way around. 16 bytes: how many of a kernel's",
             "loads and stores in global memory move so many; code for rows' ends and unaligned rows counts, too. No kernel",
             "here has accesses of which the compiler does not know the memory; none has local memory but attention's forward pass by three",
             "warpgroups (54 accesses).", "",
             "| kernel | registers | instructions | 16 bytes, % | a turn | instructions each | reads each |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    by_kernel = {}
    for row in rows:
        by_kernel.setdefault(row["kernel"], []).append(row)
    for label, both in by_kernel.items():
        cell = lambda key: " / ".join(str(r[key]) for r in both) if key in both[0] else ""
        turn = f"{cell('turn')} {both[0]['unit']}" if "turn" in both[0] else ""
        lines.append(f"| {label} | {cell('registers')} | {cell('instructions')} | {cell('wide_percent')} | {turn} | "
                     f"{cell('instructions_per_multiplication')} | {cell('shared_reads_per_multiplication')} |")
    return "\n".join(lines) + "\n"


def release_of_compiler():
    nvcc = shutil.which(os.environ.get("CUDACXX", "nvcc")) or shutil.which("/usr/local/cuda/bin/nvcc")
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout if nvcc else ""
    found = re.search(r"release (\d+\.\d+)", text)
    return f"nvcc {found[1]}" if found else "no nvcc"


def measure(hot, objects, tools, is_complete):
    """The rows of the kernels whose objects exist, their faults, and the labels of the other kernels."""
    rows_found, faults, absent = [], [], set()
    for file in dict.fromkeys(k.file for k in hot):
        path = os.path.join(objects, f"tests_cuda_{file}.cu.o")
        mine = {k.name: k for k in hot if k.file == file}
        if not os.path.exists(path):
            absent |= {k.label for k in mine.values()}
            if is_complete:
                faults.append(f"{path} is not there")
            continue
        found = machine_code.kernels(path, set(mine), *tools)
        for name, hot_one in mine.items():
            of_name = [k for k in found if k.name == name]
            if not of_name:
                faults.append(f"{hot_one.label}: {file}.cu has no {name}")
            for kernel in of_name:
                row, wrong = figures(hot_one, kernel)
                rows_found.append(row)
                faults += [f"{hot_one.label} on {kernel.architecture}: {text}" for text in wrong]
    return rows_found, faults, absent


def read(file):
    if not os.path.exists(file):
        return {"compiler": "", "rows": []}
    with open(file) as text:
        return json.load(text)


def write(file, compiler, rows_found):
    with open(file, "w") as to:
        lines = ",\n".join(json.dumps(row) for row in rows_found)
        to.write(f'{{"compiler": {json.dumps(compiler)}, "rows": [\n{lines}\n]}}\n')
    with open(os.path.splitext(file)[0] + ".md", "w") as to:
        to.write(table(rows_found, compiler))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--objects", required=True, metavar="FOLDER", help="as tests/cuda/compile.sh --keep FOLDER leaves it")
    parser.add_argument("--write", metavar="FILE.json", help="the table anew; rows whose objects are not there stay")
    parser.add_argument("--complete", action="store_true", help="no object may be missing: those of compile.sh --full")
    parser.add_argument("--committed", default=COMMITTED, metavar="FILE.json", help="what to hold")
    given = parser.parse_args()
    tools = [machine_code.find_tool(name) for name in ("cuobjdump", "nvdisasm")]
    if None in tools or shutil.which("c++filt") is None:
        print("skipped: there is no cuobjdump, nvdisasm or c++filt; PyPI has nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm")
        return 77
    if not glob.glob(os.path.join(glob.escape(given.objects), "tests_cuda_*.o")):
        print(f"skipped: {given.objects} has no objects; tests/cuda/compile.sh --keep {given.objects} makes them")
        return 77
    rows_found, faults, absent = measure([*products(), *attention(), *rows(), *elements()], given.objects, tools, given.complete)
    if not rows_found:
        faults.append(f"{given.objects} has none of the hot kernels")
    compiler = release_of_compiler()
    if given.write:
        write(given.write, compiler, rows_found + [r for r in read(given.write)["rows"] if r["kernel"] in absent])
    else:
        committed = read(given.committed)
        before = {(row["kernel"], row["architecture"]): row for row in committed["rows"]}
        if compiler != committed["compiler"]:
            print(f"{compiler}: the committed figures are of {committed['compiler']}, and not compared")
            before = {}
        held = {architecture for _, architecture in before}
        for row in [r for r in rows_found if r["architecture"] in held]:
            known = before.get((row["kernel"], row["architecture"]))
            wrong = compare(row, known) if known else ["is not in the committed table"]
            faults += [f"{row['kernel']} on {row['architecture']}: {text}" for text in wrong]
    for fault in faults:
        print(fault)
    print(f"{len(rows_found)} kernels' machine code, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
