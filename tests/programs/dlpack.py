#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Hands tensors to NumPy and PyTorch by DLPack, and takes theirs: types, shapes, strides, addresses, values and owners have to be right.

    dlpack.py [--cxx COMPILER] numpy|torch

Compiles dlpack.cpp, which makes and reads the tensors. Ends with 77 and a sentence without the package (PyPI: numpy, torch), and with 1
and a line for each difference.
"""

import argparse
import ctypes
import functools
import gc
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SHAPE = (3, 4)
STRIDES = {"rows": (4, 1), "columns": (1, 3), "apart": (16, 2), "reversed": (-4, -1)}
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMPY_TYPES = [*INTEGERS, "bool", "float16", "float32", "float64"]
TORCH_TYPES = [*NUMPY_TYPES, "bfloat16", "float8_e4m3fn", "float8_e5m2"]
CPU, CUDA = 1, 2
VERSIONED, PLAIN = b"dltensor_versioned", b"dltensor"


class Tensor(ctypes.Structure):  # DLTensor
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


class Plain(ctypes.Structure):  # DLManagedTensor
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Description(ctypes.Structure):
    _fields_ = [("shape", ctypes.c_int64 * 3), ("strides", ctypes.c_int64 * 3), ("values", ctypes.c_double * 64),
                ("device", ctypes.c_int32 * 2), ("data", ctypes.c_void_p)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
name_of = ctypes.pythonapi.PyCapsule_GetName
name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.restype, rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def compiled(compiler, folder):
    library = pathlib.Path(folder) / "libdlpack.so"
    subprocess.run([compiler, "-std=c++20", "-O0", "-Wall", "-Wextra", "-shared", "-fPIC", "-I", str(HERE.parents[1] / "include"),
                    str(HERE / "dlpack.cpp"), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.halftone_make.restype = ctypes.c_void_p
    loaded.halftone_make.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]
    loaded.halftone_take.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    loaded.halftone_message.restype = ctypes.c_char_p
    return loaded


class Ours:
    """A tensor that dlpack.cpp makes, as the protocol wants an object to be. A capsule that nobody takes is released here."""

    def __init__(self, library, kind, layout="rows", versioned=True, read_only=False, device=CPU):
        self.device = device
        self.pointer = library.halftone_make(kind.encode(), layout.encode(), versioned, read_only, device)
        self.structure = (Versioned if versioned else Plain).from_address(self.pointer)
        self.name = VERSIONED if versioned else PLAIN
        self.address = self.structure.tensor.data
        self.capsule = new_capsule(self.pointer, self.name, None)

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return self.device, 0

    def release(self):
        """Calls the deleter, as a consumer does; for one that refused."""
        if name_of(self.capsule) == self.name:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.structure.deleter)(self.pointer)
            rename(self.capsule, b"used")


def expected(kind):
    return [[(r + c) % 2 if kind == "bool" else (3 * r + c) % 8 for c in range(SHAPE[1])] for r in range(SHAPE[0])]


class Checks:
    def __init__(self, library):
        self.library, self.wrong, self.count = library, [], 0

    def equal(self, what, got, want):
        self.count += 1
        if got != want:
            self.wrong.append(f"{what}: {got}; expected {want}")

    def released(self, what):
        gc.collect()
        self.equal(f"{what}: tensors that are not released", self.library.halftone_owners(), 0)

    def refuses(self, what, error, call):
        self.count += 1
        try:
            call()
        except error:
            return
        self.wrong.append(f"{what}: not refused")

    def take(self, capsule, kind, rank=2, writes=False):
        """What halftone reads from another library's capsule, as dlpack.cpp's description; None: refused."""
        name = name_of(capsule)
        about = Description()
        done = self.library.halftone_take(pointer_of(capsule, name), kind.encode(), rank, name == VERSIONED, writes, ctypes.byref(about))
        if done:  # its deleter has been called: the capsule must not call it again
            rename(capsule, {VERSIONED: b"used_dltensor_versioned", PLAIN: b"used_dltensor"}[name])
        return about if done else None

    def given(self, what, take, ours):
        """What another library makes of a tensor of halftone's; None, and a difference, if it refuses."""
        try:
            return take(ours)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            self.wrong.append(f"{what}: {error}")
            ours.release()
            return None

    def taken(self, what, capsule, kind, shape, strides, values, address, writes=False):
        """Takes a capsule; everything about it has to be as given. Strides count elements, None: not compared."""
        about = self.take(capsule, kind, len(shape), writes)
        if about is None:
            self.wrong.append(f"{what}: refused: {self.library.halftone_message().decode()}")
            return
        rank, size = len(shape), functools.reduce(lambda a, b: a * b, shape, 1)
        self.equal(f"{what}: the shape", tuple(about.shape[:rank]), tuple(shape))
        if strides is not None:
            self.equal(f"{what}: the strides", tuple(about.strides[:rank]), tuple(strides))
        self.equal(f"{what}: the device", tuple(about.device), (CPU, 0))
        self.equal(f"{what}: the values", list(about.values[:size]), [float(v) for v in values])
        if size:
            self.equal(f"{what}: the address", about.data, address)


def structure_of(capsule):
    return (Versioned if name_of(capsule) == VERSIONED else Plain).from_address(pointer_of(capsule, name_of(capsule)))


def check_structures(checks, capsule_of, address, kind, bits):
    """Of another library's float32 tensor of 3 rows and 4 columns, whose numbers ascend, capsule_of() makes a capsule. Fields are
    changed in it, one after the other: halftone has to notice."""
    for field, value in (("code", 1), ("bits", bits // 2), ("lanes", 2), ("ndim", 3)):
        capsule = capsule_of()
        tensor = structure_of(capsule).tensor
        before = getattr(tensor, field)
        setattr(tensor, field, value)
        checks.equal(f"{field} {value} in place of {before}", checks.take(capsule, kind), None)
        setattr(tensor, field, before)  # refused: the capsule's own destructor releases it
    capsule = capsule_of()
    tensor = structure_of(capsule).tensor
    rows = (ctypes.c_int64 * 2)(2, 4)  # in place of its own array, which may be the other library's tensor's
    tensor.byte_offset, tensor.shape = 16, rows  # behind the first row
    checks.taken("a byte_offset of 16", capsule, kind, (2, 4), None, range(4, 12), address + 16)
    capsule = capsule_of()
    structure_of(capsule).tensor.byte_offset = 2
    checks.equal("a byte_offset of 2", checks.take(capsule, kind), None)
    structure_of(capsule).tensor.byte_offset = 0
    capsule = capsule_of()
    structure_of(capsule).tensor.strides = ctypes.POINTER(ctypes.c_int64)()
    checks.taken("no strides", capsule, kind, SHAPE, (4, 1), range(12), address)
    capsule = capsule_of()
    structure_of(capsule).tensor.device_type, structure_of(capsule).tensor.device_id = CUDA, 3
    about = checks.take(capsule, kind)
    checks.equal("another device", about and tuple(about.device), (CUDA, 3))
    capsule = capsule_of()
    structure_of(capsule).major = 2
    checks.equal("version 2", checks.take(capsule, kind), None)
    structure_of(capsule).major = 1


def check_numpy(checks):
    import numpy as np

    library = checks.library
    for kind in NUMPY_TYPES:
        for layout in STRIDES:
            for versioned in (True, False):
                what = f"numpy reads {kind}, {layout}, {'versioned' if versioned else 'without a version'}"
                ours = Ours(library, kind, layout, versioned)
                array = checks.given(what, np.from_dlpack, ours)
                if array is None:
                    continue
                checks.equal(f"{what}: the type", array.dtype, np.dtype(kind))
                checks.equal(f"{what}: the shape", array.shape, SHAPE)
                checks.equal(f"{what}: the strides", array.strides, tuple(array.itemsize * s for s in STRIDES[layout]))
                checks.equal(f"{what}: the address", array.ctypes.data, ours.address)
                checks.equal(f"{what}: the values", array.astype(int).tolist(), expected(kind))
                if versioned:
                    checks.equal(f"{what}: whether it may be written", array.flags.writeable, True)
                checks.equal(f"{what}: owners", library.halftone_owners(), 1)
                del array
                checks.released(what)
        array = checks.given(f"{kind}, read-only", np.from_dlpack, Ours(library, kind, read_only=True))
        checks.equal(f"numpy reads {kind}, read-only", array is not None and array.flags.writeable, False)
        array = checks.given(f"no {kind}", np.from_dlpack, Ours(library, kind, "empty"))
        checks.equal(f"numpy reads no {kind}", np.shape(array), (0, 4))
        array = checks.given(f"one {kind}", np.from_dlpack, Ours(library, kind, "scalar"))
        checks.equal(f"numpy reads one {kind}", array is not None and (array.shape, int(array)), ((), 0))
        del array
        checks.released(f"numpy reads {kind}")
    gpu = Ours(library, "float32", device=CUDA)
    gpu.device = CPU  # what the structure says has to be read
    checks.refuses("a tensor of a GPU", (BufferError, RuntimeError), lambda: np.from_dlpack(gpu))
    gpu.release()
    newer = Ours(library, "float32")
    newer.structure.major = 2
    checks.refuses("version 2 from halftone", (BufferError, RuntimeError), lambda: np.from_dlpack(newer))
    newer.release()
    checks.released("refused by numpy")

    for kind in NUMPY_TYPES:
        whole = (np.arange(60) % (2 if kind == "bool" else 8)).astype(kind).reshape(3, 20)
        parts = {"all": whole[:, :12], "from behind": whole[::-1, 7::-2], "columns": whole.T[4:8], "one row": whole[1:2],
                 "none": whole[:0], "three axes": whole.reshape(3, 4, 5)[:, 1:3, ::2], "one": whole[2, 3]}
        for name, part in parts.items():
            part = np.asarray(part)
            for version in (None, (1, 0)):
                what = f"halftone reads numpy's {kind}, {name}, version {version}"
                if part.ndim == 0:
                    part = part.reshape(())
                strides = None if part.size == 0 else [s // part.itemsize for s in part.strides]
                # An extent of 1 may have any stride.
                strides = strides and [s if n > 1 else None for s, n in zip(strides, part.shape)]
                capsule = part.__dlpack__(max_version=version) if version else part.__dlpack__()
                checks.equal(f"{what}: the capsule", name_of(capsule), VERSIONED if version else PLAIN)
                exact = strides if strides and None not in strides else None
                checks.taken(what, capsule, kind, part.shape, exact, part.astype(float).ravel(), part.ctypes.data, writes=True)
        for other in NUMPY_TYPES:
            if other != kind:
                checks.equal(f"numpy's {kind} as {other}", checks.take(whole.__dlpack__(max_version=(1, 0)), other), None)
    fixed = np.arange(12, dtype="float32").reshape(SHAPE)
    fixed.flags.writeable = False
    checks.equal("read-only to be written", checks.take(fixed.__dlpack__(max_version=(1, 0)), "float32", writes=True), None)
    checks.taken("read-only to be read", fixed.__dlpack__(max_version=(1, 0)), "float32", SHAPE, (4, 1), range(12), fixed.ctypes.data)
    rows = np.lib.stride_tricks.as_strided(np.arange(12, dtype="float32"), SHAPE, (8, 4), writeable=True)  # begin within others
    checks.equal("numpy's overlapping rows to be written", checks.take(rows.__dlpack__(max_version=(1, 0)), "float32", writes=True), None)
    checks.taken("numpy's overlapping rows to be read", rows.__dlpack__(max_version=(1, 0)), "float32", SHAPE, (2, 1), rows.ravel(), rows.ctypes.data)
    free = np.arange(12, dtype="float32").reshape(SHAPE)
    references = sys.getrefcount(free)
    check_structures(checks, lambda: free.__dlpack__(max_version=(1, 0)), free.ctypes.data, "float32", 32)
    gc.collect()
    checks.equal("references to an array that was taken", sys.getrefcount(free), references)


def check_torch(checks):
    import torch

    library = checks.library
    for kind in TORCH_TYPES:
        for layout in STRIDES:
            if layout == "reversed":
                continue  # PyTorch has no negative strides
            for versioned in (True, False):
                what = f"torch reads {kind}, {layout}, {'versioned' if versioned else 'without a version'}"
                ours = Ours(library, kind, layout, versioned)
                tensor = checks.given(what, torch.from_dlpack, ours)
                if tensor is None:
                    continue
                checks.equal(f"{what}: the type", tensor.dtype, getattr(torch, kind))
                checks.equal(f"{what}: the shape", tuple(tensor.shape), SHAPE)
                checks.equal(f"{what}: the strides", tensor.stride(), STRIDES[layout])
                checks.equal(f"{what}: the address", tensor.data_ptr(), ours.address)
                checks.equal(f"{what}: the values", tensor.double().int().tolist(), expected(kind))
                checks.equal(f"{what}: owners", library.halftone_owners(), 1)
                del tensor
                checks.released(what)
        tensor = checks.given(f"no {kind}", torch.from_dlpack, Ours(library, kind, "empty"))
        checks.equal(f"torch reads no {kind}", tensor is not None and tuple(tensor.shape), (0, 4))
        tensor = checks.given(f"one {kind}", torch.from_dlpack, Ours(library, kind, "scalar"))
        checks.equal(f"torch reads one {kind}", tensor is not None and (tuple(tensor.shape), int(tensor.double())), ((), 0))
        del tensor
        checks.released(f"torch reads {kind}")

    for kind in TORCH_TYPES:
        whole = (torch.arange(60) % (2 if kind == "bool" else 8)).double().to(getattr(torch, kind)).reshape(3, 20)
        parts = {"all": whole[:, :12], "columns": whole.T[4:8], "rows apart": whole[::2, 3::4], "none": whole[:0],
                 "three axes": whole.reshape(3, 4, 5)[:, 1:3, ::2], "one": whole[2, 3]}
        for name, part in parts.items():
            for version in (None, (1, 0)):
                what = f"halftone reads torch's {kind}, {name}, version {version}"
                capsule = part.__dlpack__(max_version=version) if version else part.__dlpack__()
                checks.equal(f"{what}: the capsule", name_of(capsule), VERSIONED if version else PLAIN)
                strides = part.stride() if part.numel() else None
                checks.taken(what, capsule, kind, tuple(part.shape), strides, part.double().flatten().tolist(), part.data_ptr(), writes=True)
        for other in TORCH_TYPES:
            if other != kind:
                checks.equal(f"torch's {kind} as {other}", checks.take(whole.__dlpack__(max_version=(1, 0)), other), None)
    one = torch.arange(4, dtype=torch.float32)
    for version in (None, (1, 0)):
        capsule = lambda: one.expand(*SHAPE).__dlpack__(**({"max_version": version} if version else {}))
        checks.equal("torch's expand to be written", checks.take(capsule(), "float32", writes=True), None)
        checks.taken("torch's expand to be read", capsule(), "float32", SHAPE, (0, 1), [0, 1, 2, 3] * SHAPE[0], one.data_ptr())
    free = torch.arange(12, dtype=torch.float32).reshape(SHAPE)
    check_structures(checks, lambda: free.__dlpack__(max_version=(1, 0)), free.data_ptr(), "float32", 32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cxx", default="c++", metavar="COMPILER")
    parser.add_argument("package", choices=["numpy", "torch"])
    given = parser.parse_args()
    if importlib.util.find_spec(given.package) is None:
        print(f"not checked: there is no package {given.package} (PyPI: {given.package})")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(compiled(given.cxx, folder))
        {"numpy": check_numpy, "torch": check_torch}[given.package](checks)
    for line in checks.wrong[:40]:
        print(line)
    print(f"{checks.count} comparisons with {given.package}, {len(checks.wrong)} differences")
    return 1 if checks.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
