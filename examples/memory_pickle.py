#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes of a memory history what torch.cuda.memory._dump_snapshot() writes, for PyTorch's memory_viz.

    python3 examples/memory_pickle.py memory.json                                       writes memory.pickle
    python -m torch.cuda._memory_viz trace_plot memory.pickle -o memory.html            or https://docs.pytorch.org/memory_viz

FILE is what history.dump or train_gpt --memory-history wrote, the .json or the .html page, which has the same numbers. In place of
PyTorch's call stack there is one frame: its file is the layer's path, its line the step, its name the operation and the pass. The category
is the kind of memory. Needs Python alone.
"""

import argparse
import bisect
import json
import pathlib
import pickle
import types


def read_history(file):
    """The JSON object of a history's file; of a page, the one in it."""
    text = pathlib.Path(file).read_text(encoding="utf-8")
    if text.startswith("<"):
        text = text.split('id="data">')[1].split("</script>")[0]
    return json.loads(text)


def allocations_of(history, key):
    """The allocations, or the refused requests, as objects with a member for each column, `category` and `frames`."""
    frames = {}  # one list for each origin, which the pickle stores once

    def allocation(row):
        a = types.SimpleNamespace(**dict(zip(history["columns"], row)))
        operation, layer = history["operations"][a.operation], history["layers"][a.layer] or "halftone"
        name = f"{operation} ({history['passes'][getattr(a, 'pass')]})" if operation else "outside of operations"
        a.category = history["kinds"][a.kind]
        a.frames = frames.setdefault((layer, name, a.step), [{"filename": layer, "line": a.step, "name": name}])
        return a

    return [allocation(row) for row in history[key]]


def merged(ranges):
    """The union of (first address, one after the last): disjoint ranges, by address."""
    made = []
    for first, end in sorted(ranges):
        if not made or first > made[-1][1]:
            made.append([first, end])
        else:
            made[-1][1] = max(made[-1][1], end)
    return made


def segments_of(history, allocations):
    """The segments at the window's end, with the blocks in use. Blocks whose segment was taken before the recording are put into
    additional segments; bytes without an address, from before the recording, into one at the beginning of memory."""
    known = merged((address, address + size) for address, size, _, _ in history["segments"])
    firsts = [first for first, _ in known]

    def is_known(a):
        i = bisect.bisect_right(firsts, a.address) - 1
        return i >= 0 and a.address < known[i][1]

    ranges = [(address, size) for address, size, _, ended in history["segments"] if ended < 0]
    ranges += [(first, end - first) for first, end in merged((a.address, a.address + a.bytes) for a in allocations if not is_known(a))]
    before, at = [], 4096
    for size in filter(None, history["unrecorded"]):
        before.append((at, size, []))
        at += size
    if before:
        ranges.append((4096, at - 4096))
    ranges.sort(key=lambda r: r[0])
    starts, blocks = [address for address, _ in ranges], [[] for _ in ranges]
    if before:
        blocks[starts.index(4096)] += before
    for a in allocations:
        i = bisect.bisect_right(starts, a.address) - 1
        if a.ended < 0 and i >= 0:
            blocks[i].append((a.address, a.bytes, a.frames))
    return [segment(address, size, sorted(within, key=lambda b: b[0])) for (address, size), within in zip(ranges, blocks)]


def segment(address, size, within):
    """A segment's record, with the blocks in use and the gaps."""
    def block(at, bytes, state, frames):
        return {"address": at, "size": bytes, "requested_size": bytes if state != "inactive" else 0, "state": state, "frames": frames}

    blocks, end = [], address
    for at, bytes, frames in [*within, (address + size, 0, None)]:
        if at > end:
            blocks.append(block(end, at - end, "inactive", []))
        if frames is not None:
            blocks.append(block(at, bytes, "active_allocated", frames))
            end = at + bytes
    used = sum(bytes for _, bytes, _ in within)
    return {"device": 0, "address": address, "total_size": size, "allocated_size": used, "active_size": used, "requested_size": used,
            "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}


def trace_of(history, allocations):
    """All events in order: segments taken and returned, blocks allocated and released, failed requests."""
    events = []

    def add(event, action, address, size, of=None, time=0):
        where = "device_free" if of is not None and address == 0 else "addr"
        events.append((event, {"action": action, where: address, "size": size, "stream": 0, "time_us": time,
                               "category": of.category if of else "unknown", "frames": of.frames if of else []}))

    first = history["first_event"]
    for address, size, began, ended in history["segments"]:
        if began >= first:
            add(began, "segment_alloc", address, size)
        if ended >= 0:
            add(ended, "segment_free", address, size)
    for r in allocations_of(history, "refused"):
        add(r.began, "oom", r.address, r.bytes, r, r.began_us)
    for a in allocations:
        if a.began >= first:
            add(a.began, "alloc", a.address, a.bytes, a, a.began_us)
        if a.ended >= 0:
            add(a.ended, "free_requested", a.address, a.bytes, a, a.ended_us)
            add(a.ended, "free_completed", a.address, a.bytes, a, a.ended_us)
    events.sort(key=lambda e: e[0])
    add(0, "snapshot", 0, 0)  # the last entry, as in PyTorch; its category is one that readers know
    return [entry for _, entry in events]


def pytorch_snapshot(history):
    """The dict that torch.cuda.memory._snapshot() would give."""
    allocations = allocations_of(history, "allocations")
    return {"segments": segments_of(history, allocations), "device_traces": [trace_of(history, allocations)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("-o", metavar="PICKLE", help="the file to write; without it FILE's name with the ending .pickle")
    args = parser.parse_args()
    written = pathlib.Path(args.o or pathlib.Path(args.file).with_suffix(".pickle"))
    written.write_bytes(pickle.dumps(pytorch_snapshot(read_history(args.file)), protocol=2))


if __name__ == "__main__":
    main()
