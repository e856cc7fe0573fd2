#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A pack: the programs for a machine with a GPU, stripped and compressed, train_gpt's text, and manifest.json.

    pack.py FOLDER --build FOLDER --root FOLDER [--most MB]       makes one of what was built; bench/gpu_pack.sh calls it

open_pack(folder, work) is its other end: it checks sizes and SHA-256 and unpacks.
"""
import argparse
import datetime
import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

PROGRAMS = {"test_cuda": "tests/test_cuda", "bench_cuda": "bench/bench_cuda", "train_gpt": "examples/train_gpt"}
# What examples/train_gpt/corpus.cpp reads of the repository.
TEXT_PARTS = ("include", "docs", "examples", "CHANGELOG.md", "README.md")
TEXT_ENDINGS = (".hpp", ".cuh", ".cpp", ".cu", ".md")


class PackError(Exception):
    """An invalid pack; the message is one sentence."""


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def needed_libraries(program):
    """The shared libraries that a 64-bit ELF file needs."""
    data = pathlib.Path(program).read_bytes()
    if data[:5] != b"\x7fELF\x02":
        return []
    table, = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    segments = [struct.unpack_from("<IIQQQQQQ", data, table + i * size) for i in range(count)]
    at_file = lambda address: next(address - s[3] + s[2] for s in segments if s[0] == 1 and s[3] <= address < s[3] + s[5])
    entries = []
    for kind, _, offset, _, _, length, _, _ in segments:
        if kind == 2:  # PT_DYNAMIC
            entries = [struct.unpack_from("<QQ", data, at) for at in range(offset, offset + length, 16)]
    strings = next((at_file(value) for tag, value in entries if tag == 5), 0)
    name = lambda at: data[at:data.index(b"\0", at)].decode()
    return [name(strings + value) for tag, value in entries if tag == 1]


def own_text(root):
    paths = []
    for part in TEXT_PARTS:
        path = pathlib.Path(root, part)
        paths += [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return b"".join(p.read_bytes() for p in paths if p.suffix in TEXT_ENDINGS)


def write_pack(folder, programs, text, facts):
    """programs: {name: bytes}. The manifest is written last; without it the pack is invalid. Returns its bytes."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").unlink(missing_ok=True)
    manifest = dict(facts, programs={})
    total = 0

    def put(name, data):
        packed = gzip.compress(data, 9, mtime=0)
        (folder / (name + ".gz")).write_bytes(packed)
        return {"file": name + ".gz", "bytes": len(data), "sha256": sha256(data), "packed_bytes": len(packed)}

    for name, data in programs.items():
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            manifest["programs"][name] = dict(put(name, data), needs=needed_libraries(file.name))
        total += manifest["programs"][name]["packed_bytes"]
    manifest["text"] = put("text", text)
    manifest["packed_bytes"] = total + manifest["text"]["packed_bytes"]
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest["packed_bytes"]


def read_manifest(folder):
    try:
        manifest = json.loads(pathlib.Path(folder, "manifest.json").read_text())
        manifest["programs"].items(), manifest["text"]["file"]
        return manifest
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise PackError(f"{folder} is no pack of bench/gpu_pack.sh: {type(error).__name__}: {error}") from None


def open_pack(folder, work):
    """Unpacks a valid pack into `work`. Returns {name: path}, including `text`, and the manifest."""
    manifest = read_manifest(folder)
    paths = {}
    for name, entry in [*manifest["programs"].items(), ("text", manifest["text"])]:
        try:
            data = gzip.decompress(pathlib.Path(folder, entry["file"]).read_bytes())
        except (OSError, EOFError, ValueError) as error:
            raise PackError(f"{name} of the pack {folder} cannot be read: {error}") from None
        if len(data) != entry["bytes"] or sha256(data) != entry["sha256"]:
            raise PackError(f"{name} of the pack {folder} has {len(data)} bytes and SHA-256 {sha256(data)[:12]}; "
                            f"the manifest has {entry['bytes']} and {entry['sha256'][:12]}")
        paths[name] = pathlib.Path(work, name + (".txt" if name == "text" else ""))
        paths[name].write_bytes(data)
        paths[name].chmod(0o644 if name == "text" else 0o755)
    return paths, manifest


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def facts_of(root, build):
    cache = pathlib.Path(build, "CMakeCache.txt").read_text(errors="replace")

    def cached(name):
        found = re.search(rf"^{name}:[^=]*=(.*)$", cache, re.MULTILINE)
        return found[1] if found else ""

    nvcc, gcc = cached("CMAKE_CUDA_COMPILER") or "nvcc", cached("CMAKE_CXX_COMPILER") or "c++"
    release = re.search(r"release \S+", output_of(nvcc, "--version"))
    command = ""
    commands = pathlib.Path(build, "compile_commands.json")
    if commands.exists():
        for entry in json.loads(commands.read_text()):
            if entry["file"].endswith("bench/cuda/matmul.cu"):
                command = re.sub(r" -(o|c|x) \S+| -I\S+| -isystem \S+", "", entry["command"])
    return {
        "commit": output_of("git", "-C", str(root), "rev-parse", "HEAD") or "unknown",
        "changed_files": len(output_of("git", "-C", str(root), "status", "--porcelain").splitlines()),
        "packed": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "architectures": cached("CMAKE_CUDA_ARCHITECTURES"),
        "compilers": {"cuda": release[0] if release else "", "host": output_of(gcc, "--version").split("\n")[0]},
        "flags": {"build_type": cached("CMAKE_BUILD_TYPE"), "cuda": cached("CMAKE_CUDA_FLAGS"),
                  "cxx": cached("CMAKE_CXX_FLAGS"), "linker": cached("CMAKE_EXE_LINKER_FLAGS"), "command": command},
    }


def stripped(program):
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(program, folder)
        subprocess.run(["strip", "--strip-all", copy], check=True)
        return pathlib.Path(copy).read_bytes()


def main():
    parser = argparse.ArgumentParser(description="Packs the programs for a GPU that is elsewhere.")
    parser.add_argument("folder")
    parser.add_argument("--build", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--most", type=int, default=40)
    arguments = parser.parse_args()
    programs = {}
    for name, path in PROGRAMS.items():
        built = pathlib.Path(arguments.build, path)
        if not os.access(built, os.X_OK):
            print(f"pack.py: {built} was not built", file=sys.stderr)
            return 1
        programs[name] = stripped(built)
    packed = write_pack(arguments.folder, programs, own_text(arguments.root), facts_of(arguments.root, arguments.build))
    for name, entry in read_manifest(arguments.folder)["programs"].items():
        print(f"{name:12} {entry['bytes'] / 1e6:6.1f} MB, packed {entry['packed_bytes'] / 1e6:6.1f} MB, needs {' '.join(entry['needs'])}")
    print(f"{arguments.folder}: {packed / 1e6:.1f} MB")
    if packed > arguments.most * 1e6:
        pathlib.Path(arguments.folder, "manifest.json").unlink()
        print(f"pack.py: that is more than the {arguments.most} MB allowed, so there is no manifest", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
