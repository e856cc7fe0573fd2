#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the files of a memory history as their readers read them.

    python3 tests/programs/memory_history.py memory.json [memory.html]     # of one run, by Python's pickle
    python3 tests/programs/memory_history.py --memory-viz memory.json      # by PyTorch's memory_viz

examples/memory_pickle.py makes the pickle, of each file. The bytes in use that the events of the pickle and of the JSON add up to have to
be those of the segments, and both have the same peak. memory_viz is torch/cuda/_memory_viz.py, without the rest of PyTorch: its tables and its two pages are made. Ends with 77 where
neither PyTorch nor that file alone is installed.
"""
import importlib.util
import json
import pathlib
import pickle
import pickletools
import subprocess
import sys
import tempfile


def memory_viz():
    """PyTorch's module, or None."""
    spec = importlib.util.find_spec("_memory_viz")  # alone, as tests/run.sh takes it out of a wheel
    if spec is None:
        torch = importlib.util.find_spec("torch")
        if torch is None:
            return None
        spec = importlib.util.spec_from_file_location("_memory_viz", pathlib.Path(torch.origin).parent / "cuda" / "_memory_viz.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def peak_of(snapshot):
    """The most bytes in use, and those at the end, by the events of the trace."""
    trace = snapshot["device_traces"][0]
    assert trace[-1]["action"] == "snapshot"
    in_use = {block["address"]: block["size"] for s in snapshot["segments"] for block in s["blocks"]
              if block["state"] == "active_allocated"}
    at_end = dict(in_use)
    for e in reversed(trace):  # back to the beginning of the window
        if e["action"] == "alloc":
            assert in_use.pop(e["addr"]) == e["size"], e
        elif e["action"] == "free_completed":
            assert e["addr"] not in in_use, e
            in_use[e["addr"]] = e["size"]
    live = peak = sum(in_use.values())
    for i, e in enumerate(trace):
        assert {"action", "addr", "size", "stream", "frames", "category", "time_us"} <= e.keys() | {"addr"}, e
        if e["action"] == "alloc":
            live += e["size"]
            peak = max(peak, live)
        elif e["action"] == "free_completed":
            before = trace[i - 1]
            assert before["action"] == "free_requested" and before["addr"] == e["addr"]
            live -= e["size"]
        for f in e["frames"]:
            assert f.keys() == {"filename", "line", "name"} and isinstance(f["line"], int)
    assert live == sum(at_end.values())
    return peak, live


def check_segments(snapshot):
    for s in snapshot["segments"]:
        assert sum(b["size"] for b in s["blocks"]) == s["total_size"], s
        address = s["address"]
        for b in s["blocks"]:
            assert b["address"] == address, b
            address += b["size"]
        used = sum(b["size"] for b in s["blocks"] if b["state"] == "active_allocated")
        assert s["allocated_size"] == s["active_size"] == s["requested_size"] == used


def check_json(j):
    """The peak of its allocations."""
    column = {name: i for i, name in enumerate(j["columns"])}
    begin = j["first_event"] - 1
    changes = {}
    live = sum(j["unrecorded"])
    for row in j["allocations"]:
        assert len(row) == len(column)
        began, ended, size = row[column["began"]], row[column["ended"]], row[column["bytes"]]
        assert ended == -1 or began < ended < j["events"]
        if began <= begin:
            live += size
        else:
            changes[began] = size
        if ended >= 0:
            changes[ended] = -size
    peak = live
    for event in sorted(changes):
        live += changes[event]
        peak = max(peak, live)
    assert peak == j["peak_bytes"] == sum(j["bytes_at_peak"]), (peak, j["peak_bytes"])
    return peak, live


def snapshot_of(file):
    """What examples/memory_pickle.py makes of a history's file."""
    tool = pathlib.Path(__file__).resolve().parents[2] / "examples/memory_pickle.py"
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder, "memory.pickle")
        subprocess.run([sys.executable, tool, file, "-o", made], check=True)
        raw = made.read_bytes()
    assert all(opcode.proto <= 2 for opcode, _, _ in pickletools.genops(raw))
    return pickle.loads(raw)


def check_json_and_pages(jsons, pages):
    snapshot = snapshot_of(jsons)
    check_segments(snapshot)
    j = json.loads(pathlib.Path(jsons).read_text())
    assert peak_of(snapshot) == check_json(j), (peak_of(snapshot), check_json(j))
    for page in pages:
        check_segments(snapshot_of(page))
        text = pathlib.Path(page).read_text()
        data = text.split('id="data">')[1].split("</script>")[0]
        assert json.loads(data).keys() == j.keys()
        assert not any(word in text for word in ("http", "src=", "url(", "import "))


def check_memory_viz(jsons):
    """0, or 77 without memory_viz."""
    viz = memory_viz()
    if viz is None:
        print("skipped: there is no memory_viz of PyTorch")
        return 77
    snapshot = snapshot_of(jsons)
    assert "total_allocated: " + str(viz.Bytes(peak_of(snapshot)[1])) in viz.segsum(snapshot)
    assert "entries" in viz.trace(snapshot)
    for page in (viz.trace_plot(snapshot), viz.segment_plot(snapshot), viz.trace_plot(snapshot, filter_freed=True)):
        assert "add_local_files" in page
    flames = viz.memory(snapshot, format_flamegraph=lambda lines: lines)
    assert "active_allocated" in flames
    print("memory_viz reads it")
    return 0


if sys.argv[1] == "--memory-viz":
    sys.exit(check_memory_viz(sys.argv[2]))
check_json_and_pages(sys.argv[1], sys.argv[2:])
