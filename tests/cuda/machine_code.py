# SPDX-License-Identifier: MIT
"""Reads the kernels of a compiled CUDA object: registers, and the machine code with its loops.

    for kernel in machine_code.kernels("tests_cuda_rows.cu.o", {"column_sum_kernel<float, 4>"}, cuobjdump, nvdisasm):
        print(kernel.name, kernel.architecture, kernel.registers, len(kernel.code))

Parses the output of cuobjdump and nvdisasm, and of c++filt for names. Needs only these and Python.
"""
import collections
import glob
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P[0-9T]+)\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*?)\s*;")


class instruction:
    def __init__(self, address, guard, operation, operands):
        self.address, self.guard, self.operation, self.operands = address, guard, operation, operands
        self.word = operation.split(".")[0]

    def target(self):
        """The label that a branch goes to, else None."""
        found = re.search(r"`\((\S+)\)$", self.operands) if self.word == "BRA" else None
        return found[1] if found else None

    def goes_on(self):
        """Whether the next instruction may follow."""
        if self.word == "BRA":  # what stands before the target is a condition
            return self.guard is not None or not self.operands.startswith("`(")
        return self.word not in ("EXIT", "RET", "BRX", "JMP") or self.guard is not None

    def is_global(self):
        return self.word in ("LDG", "STG", "LDGSTS") or self.is_generic()

    def is_generic(self):
        """The hardware, not the compiler, finds out which memory it is."""
        return self.word in ("LD", "ST", "ATOM")

    def is_wide(self):
        return ".128" in self.operation

    def is_local(self):
        return self.word in ("LDL", "STL")


class kernel:
    def __init__(self, name, architecture, registers, stack):
        self.name, self.architecture, self.registers, self.stack = name, architecture, registers, stack
        self.code, self.labels = [], {}

    def blocks(self):
        """{address: (instructions, addresses of what may follow)}"""
        blocks, body = {}, []
        places = set(self.labels.values())
        for i, after in zip(self.code, self.code[1:] + [None]):
            body.append(i)
            is_end = i.target() is not None or not i.goes_on()
            if after is None or is_end or after.address in places:
                follow = [self.labels[i.target()]] if i.target() in self.labels else []
                if i.goes_on() and after is not None:
                    follow.append(after.address)
                blocks[body[0].address] = (body, follow)
                body = []
        return blocks

    def loops(self, wanted, multiplies, brings):
        """The innermost loops that can be gone around with so many multiplications: `wanted` has the numbers that will do,
        the first that does decides. Of each the hot way around, as its instructions: of the ways with that number those
        that bring in most, and of these the shortest, which leaves out what seldom happens. `multiplies` and `brings` ask
        an instruction."""
        blocks, found = self.blocks(), []
        before = collections.defaultdict(set)
        for block, (_, follow) in blocks.items():
            for after in follow:
                before[after].add(block)

        def search(nodes):
            for part in cycles(nodes, blocks):
                head, already = min((n for n in part if before[n] - part), default=min(part)), len(found)
                search(part - {head})
                if len(found) == already:
                    found.extend(hot_way(part, head, blocks, wanted, multiplies, brings))

        search(set(blocks))
        return found


def cycles(nodes, blocks):
    """The sets of nodes that reach each other (Tarjan 1972), those of one node only where it follows itself."""
    index, low, stack, on_stack, result = {}, {}, [], set(), []
    for root in sorted(nodes):
        if root in index:
            continue
        work = [(root, iter(blocks[root][1]))]
        index[root] = low[root] = len(index)
        stack.append(root), on_stack.add(root)
        while work:
            node, rest = work[-1]
            for after in rest:
                if after not in nodes:
                    continue
                if after not in index:
                    index[after] = low[after] = len(index)
                    stack.append(after), on_stack.add(after)
                    work.append((after, iter(blocks[after][1])))
                    break
                if after in on_stack:
                    low[node] = min(low[node], index[after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = set()
                    while node not in part:
                        part.add(stack.pop())
                    on_stack -= part
                    if len(part) > 1 or node in blocks[node][1]:
                        result.append(part)
    return result


def in_order(part, head, blocks):
    """The blocks of a loop from its head on, each after those that lead to it but for inner loops; and these loops' ends."""
    done, open_, order, backward = set(), {head}, [], set()
    work = [(head, iter(blocks[head][1]))]
    while work:
        node, rest = work[-1]
        for after in rest:
            if after not in part:
                continue
            if after in open_:
                backward.add((node, after))
            elif after not in done:
                open_.add(after)
                work.append((after, iter(blocks[after][1])))
                break
        else:
            work.pop()
            open_.remove(node)
            done.add(node)
            order.append(node)
    return order[::-1], backward


def hot_way(part, head, blocks, wanted, multiplies, brings):
    """See kernel.loops: a list of one, or of none."""
    order, backward = in_order(part, head, blocks)
    # Before each block: {(multiplications, brought): (instructions, the block before, its key)}.
    reached = {n: {} for n in part}
    reached[head][0, 0] = (0, None, None)
    around = {}
    for node in order:
        body, follow = blocks[node]
        multiplications, brought = sum(map(multiplies, body)), sum(map(brings, body))
        for key, (instructions, _, _) in reached[node].items():
            after_it = key[0] + multiplications, key[1] + brought
            if after_it[0] > max(wanted):
                continue
            for after in follow:
                if after != head and (after not in part or (node, after) in backward):
                    continue
                ways = around if after == head else reached[after]
                if after_it not in ways or instructions + len(body) < ways[after_it][0]:
                    ways[after_it] = instructions + len(body), node, key
    for number in wanted:
        brought = [key[1] for key in around if key[0] == number]
        if brought:
            _, node, key = around[number, max(brought)]
            way = []
            while node is not None:
                way = blocks[node][0] + way
                _, node, key = reached[node][key]
            return [way]
    return []


def find_tool(name):
    """cuobjdump or nvdisasm: as a variable of the environment names it, of the toolkit, or of the packages
    nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm among some Python's; None where there is none."""
    given = os.environ.get(name.upper())
    if given:
        return shutil.which(given)
    places = [os.path.join(os.environ.get("CUDA_PATH", "/usr/local/cuda"), "bin")]
    nvcc = shutil.which(os.environ.get("CUDACXX", "nvcc"))
    if nvcc:
        places.append(os.path.dirname(os.path.realpath(nvcc)))
    for folder in sys.path:
        places += glob.glob(os.path.join(glob.escape(folder), "nvidia", "*", "bin"))
    return shutil.which(name) or next(filter(None, (shutil.which(name, path=p) for p in places)), None)


def output_of(*command, text=None, folder=None):
    return subprocess.run(command, input=text, check=True, text=True, stdout=subprocess.PIPE, cwd=folder).stdout


def short_names(symbols):
    """Demangled, without namespaces and the entry around the kernel: matrix_unit_kernel<bfloat16, …>."""
    names = output_of("c++filt", text="\n".join(symbols)).split("\n")
    short = {}
    for symbol, name in zip(symbols, names):
        name = re.sub(r"^void halftone::\w+::detail::kernel_entry<(.*)>\(.*$", r"\1", name)
        name = re.sub(r"\b(?:halftone|v\d+_\d+\w*|kernel|on_device|detail|symbolic|op)::", "", name)
        short[symbol] = re.sub(r"\s+>", ">", name).strip()
    return short


def symbol_numbers(cubin):
    """{name: number} of an ELF64 file's symbols, as nvdisasm counts them."""
    with open(cubin, "rb") as file:
        data = file.read()
    start, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]
    numbers = {}
    for _, kind, _, _, offset, length, link, _, _, each in sections:
        if kind == 2:  # the table of symbols
            for number in range(length // each):
                name = sections[link][4] + struct.unpack_from("<I", data, offset + number * each)[0]
                numbers[data[name : data.index(b"\0", name)].decode()] = number
    return numbers


def kernels(file, wanted, cuobjdump, nvdisasm):
    """Those of the object with one of the short names, once for each architecture."""
    found = []
    with tempfile.TemporaryDirectory() as work:
        output_of(cuobjdump, "-xelf", "all", os.path.abspath(file), folder=work)
        for cubin in sorted(glob.glob(os.path.join(work, "*.cubin"))):
            found += kernels_of_cubin(cubin, wanted, cuobjdump, nvdisasm)
    return found


def kernels_of_cubin(cubin, wanted, cuobjdump, nvdisasm):
    resources, symbol = {}, None
    for line in output_of(cuobjdump, "-res-usage", cubin).splitlines():
        if line.startswith(" Function "):
            symbol = line.split()[1].rstrip(":")
        elif symbol and "REG:" in line:
            resources[symbol] = {k: int(v) for k, v in re.findall(r"\b([A-Z]+):(\d+)", line)}
    names, architecture = short_names(sorted(resources)), re.search(r"sm_\w+?(?=\.cubin)", cubin)[0]
    mine = {symbol: kernel(names[symbol], architecture, n["REG"], n["STACK"] + n["LOCAL"])
            for symbol, n in resources.items() if names[symbol] in wanted}
    if not mine:
        return []
    numbers, current, waiting = symbol_numbers(cubin), None, []
    for line in output_of(nvdisasm, "-c", "-ndf", "-fun", ",".join(str(numbers[s]) for s in mine), cubin).splitlines():
        match = INSTRUCTION.match(line)
        if match and current is not None:
            one = instruction(int(match[1], 16), match[2], match[3], match[4])
            current.code.append(one)
            current.labels.update((label, one.address) for label in waiting)
            waiting = []
        elif line.startswith(".text.") and line.endswith(":"):
            current, waiting = mine.get(line[len(".text.") : -1]), []
        elif line.startswith(".L_") and line.endswith(":"):
            waiting.append(line[:-1])
    return list(mine.values())
