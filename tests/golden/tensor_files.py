# SPDX-License-Identifier: MIT
"""Files between Python's safetensors and halftone: python3 tests/golden/tensor_files.py [OURS] writes
safetensors_types.safetensors, safetensors_other_types.safetensors and array.npy, whose tensors tests/io compares, and checks
that Python reads OURS, the file that tests/io/safetensors.cpp writes, as the same tensors. Needs torch, numpy and safetensors
0.8, whose 22 types these are."""
import json
import os
import struct
import sys

import numpy
import torch
from safetensors import deserialize, safe_open
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = {'BOOL': torch.bool, 'U8': torch.uint8, 'I8': torch.int8, 'F8_E5M2': torch.float8_e5m2,
         'F8_E4M3': torch.float8_e4m3fn, 'I16': torch.int16, 'U16': torch.uint16, 'F16': torch.float16,
         'BF16': torch.bfloat16, 'I32': torch.int32, 'U32': torch.uint32, 'F32': torch.float32, 'F64': torch.float64,
         'I64': torch.int64, 'U64': torch.uint64}


def tensors():
    """Two rows of three, of every type, a scalar and one without elements."""
    made = {}
    for name, kind in TYPES.items():
        floats = name.startswith(('F', 'B'))
        values = [(i - 2) * 0.25 if floats and name != 'BOOL' else i % 2 if name == 'BOOL' else i * 20 for i in range(6)]
        made['of.' + name] = torch.tensor(values, dtype=torch.float64).to(kind).reshape(2, 3)
    made['scalar'] = torch.tensor(1.5)
    made['empty'] = torch.zeros(0, 3, dtype=torch.bfloat16)
    made['name with "quotes", \u00e4 and \u4e2d'] = torch.tensor([7.0])
    return made


OTHER_BITS = {'C64': 64, 'F8_E8M0': 8, 'F8_E4M3FNUZ': 8, 'F8_E5M2FNUZ': 8, 'F6_E2M3': 6, 'F6_E3M2': 6, 'F4': 4}


def other_types():
    """A file with four elements of each type that halftone does not convert, and a bias in F32; safetensors has to take it."""
    header, body = {}, b''
    for name, bits in {'F32': 32, **OTHER_BITS}.items():
        data = struct.pack('<4f', 1, 2, 3, 4) if name == 'F32' else bytes(range(bits // 2))
        header['bias' if name == 'F32' else 'of.' + name] = {
            'dtype': name, 'shape': [2, 2], 'data_offsets': [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    whole = struct.pack('<Q', len(text)) + text + body
    read = dict(deserialize(whole))
    assert {name: t['dtype'] for name, t in read.items()} == {name: t['dtype'] for name, t in header.items()}, read
    return whole


with open(os.path.join(HERE, 'safetensors_other_types.safetensors'), 'wb') as written:
    written.write(other_types())
theirs = os.path.join(HERE, 'safetensors_types.safetensors')
save_file(tensors(), theirs, metadata={'format': 'pt', 'written by': 'Python'})
numpy.save(os.path.join(HERE, 'array.npy'), numpy.arange(6, dtype=numpy.float32).reshape(2, 3) / 4)
print(theirs, os.path.getsize(theirs), 'bytes')
if len(sys.argv) > 1:
    ours, expected = load_file(sys.argv[1]), tensors()
    assert ours.keys() == expected.keys(), ours.keys() ^ expected.keys()
    for name, tensor in expected.items():
        assert ours[name].dtype == tensor.dtype and ours[name].shape == tensor.shape, name
        # Bytes, since not every type has a comparison.
        assert ours[name].contiguous().view(-1).numpy(force=True).tobytes() == tensor.view(-1).numpy().tobytes() \
            if tensor.dtype not in (torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn) \
            else torch.equal(ours[name].to(torch.float32), tensor.to(torch.float32)), name
    with safe_open(sys.argv[1], 'pt') as file:
        assert file.metadata() == {'format': 'pt', 'written by': 'halftone'}, file.metadata()
    print('Python reads', sys.argv[1])
