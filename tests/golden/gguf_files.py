#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes gguf_files/*.gguf and gguf_files.txt: small random models as GGUF files, the checksums of the numbers in them, and transformers' logits.

    python3 tests/golden/gguf_files.py               # needs PyPI's torch, transformers and gguf; those committed are of 2.15, 5.24 and 0.19
    python3 tests/golden/gguf_files.py --blocks      # writes gguf_blocks.txt: numbers, and the bytes of blocks that the gguf package makes of them
    python3 tests/golden/gguf_files.py --seeds     # writes tests/fuzz/seeds/gguf/, small files, good ones and bad ones
    python3 tests/golden/gguf_files.py --llama-cpp   # compares gguf_files.txt's logits with llama.cpp's, of PyPI's cyllama (0.2.18)

Each model is there in each number type, F32, F16, BF16, Q8_0, Q4_0 and MXFP4; vectors are F32 in all. Checksums are CRC-32s of the float32
numbers to which the gguf package dequantises a tensor. Logits are those of transformers' model with these numbers in float32, q and k of a
Llama permuted as llama.cpp's converter does it.
"""
import math
import pathlib
import sys
import types
import zlib

import numpy

from golden_model import generator, numbers

HERE = pathlib.Path(__file__).parent
FILES = HERE / "gguf_files"
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "MXFP4"]
COMMON = dict(vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=64, attn_implementation="eager", attention_dropout=0.0)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=128)
TIME = 9
MANY_BLOCKS = 4096
# transformers' names and GGUF's.
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def cases():
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    return {
        "llama": ("llama", LlamaConfig, LlamaForCausalLM,
                  dict(rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=20000.0))),
        # Frequencies that are kept, that are between, and that are divided by the factor.
        "llama3": ("llama", LlamaConfig, LlamaForCausalLM, dict(rms_norm_eps=1e-5, tie_word_embeddings=True, head_dim=16, rope_parameters=LLAMA3)),
        "qwen2": ("qwen2", Qwen2Config, Qwen2ForCausalLM,
                  dict(rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
        "qwen3": ("qwen3", Qwen3Config, Qwen3ForCausalLM,
                  dict(rms_norm_eps=1e-6, tie_word_embeddings=True, head_dim=16, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    }


def name_of(name):
    stem, end = name.rsplit(".", 1)
    if stem in NAMES:
        return f"{NAMES[stem]}.{end}"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.{end}"


def permuted(values, heads):
    """As convert_hf_to_gguf.py has it: the two halves of a head's rows become pairs of neighbours."""
    return values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def unpermuted(values, heads):
    return values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def factors(config):
    """rope_freqs.weight as convert_hf_to_gguf.py has it, in float32."""
    import torch

    rope, dim = config.rope_parameters, config.head_dim
    low, high, context, factor = (rope[k] for k in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings", "factor"))
    result = []
    for frequency in 1.0 / (rope["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)):
        length = 2 * math.pi / frequency
        if length < context / high:
            result.append(1)
        elif length > context / low:
            result.append(factor)
        else:
            smooth = (context / length - low) / (high - low)
            result.append(1 / ((1 - smooth) / factor + smooth))
    return numpy.array(result, dtype=numpy.float32)


def add_sizes(writer, arch, config):
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if arch != "qwen2":
        writer.add_rope_dimension_count(head)
        writer.add_key_length(head)
        writer.add_value_length(head)


def add_letters(writer):
    import gguf

    # A tokenizer of llama.cpp's: a token for each letter, two merges and a control token.
    letters = [chr(ord("a") + i) for i in range(26)]
    tokens = letters + ["Ġ", "th", "the", "Ċ", "<s>", "</s>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if t.startswith("<") else gguf.TokenType.NORMAL for t in tokens])
    writer.add_token_merges(["t h", "th e"])
    writer.add_bos_token_id(30)
    writer.add_eos_token_id(31)
    writer.add_add_bos_token(False)


def run(case):
    import gguf
    import torch

    arch, make_config, make_model, options = cases()[case]
    config = make_config(**{**COMMON, **options})
    model = make_model(config).float().eval()
    values = generator()
    state = {k: v for k, v in model.state_dict().items() if k != "lm_head.weight" or not config.tie_word_embeddings}
    for name, tensor in state.items():
        is_gain = "norm" in name
        state[name] = values.numbers(tensor.shape, 0.5 if is_gain or name.endswith("bias") else 0.25, 1.0 if is_gain else 0.0)
    tokens = torch.tensor([[values.next() % config.vocab_size for _ in range(TIME)]])
    heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
    for type_name in TYPES:
        file_type = gguf.GGMLQuantizationType[type_name]
        writer = gguf.GGUFWriter(FILES / f"{case}-{type_name}.gguf", arch)
        add_sizes(writer, arch, config)
        add_letters(writer)
        yield f"case {case} {type_name}"
        if arch == "llama" and config.rope_parameters["rope_type"] == "llama3":
            writer.add_tensor("rope_freqs.weight", factors(config))
        read = {}
        for name, tensor in state.items():
            array = tensor.numpy()
            count = next((n for part, n in heads.items() if part in name), 0) if arch == "llama" else 0
            if count:
                array = permuted(array, count)
            stored = file_type if array.ndim == 2 else gguf.GGMLQuantizationType.F32
            packed = gguf.quants.quantize(numpy.ascontiguousarray(array), stored)
            writer.add_tensor(name_of(name), packed, raw_dtype=stored)
            back = gguf.quants.dequantize(packed, stored).astype(numpy.float32).reshape(array.shape)
            yield f"tensor {name_of(name)} {stored.name} {zlib.crc32(back.tobytes())}"
            read[name] = torch.from_numpy(unpermuted(back, count) if count else back)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        missing, unexpected = model.load_state_dict(read, strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
        model.tie_weights()
        with torch.no_grad():
            logits = model(tokens, use_cache=False).logits
        yield "tokens " + " ".join(str(t) for t in tokens[0].tolist())
        yield "logits " + numbers(logits)


def codes():
    """All blocks of MXFP4 whose 32 elements are the 16 codes, twice, one for each scale: checksums of what the package makes of them."""
    import gguf

    low_first = bytes(c | c << 4 for c in range(16))
    for scale in range(255):  # 255 is NaN, which the package takes for 2^128
        values = gguf.quants.dequantize(numpy.frombuffer(bytes([scale]) + low_first, dtype=numpy.uint8), gguf.GGMLQuantizationType.MXFP4)
        yield f"scale {scale} {zlib.crc32(values.astype(numpy.float32).tobytes())}"


def save_seeds():
    """A model of one layer with heads of 2 whose projections and factors are there, each type of key, each type of tensor."""
    import gguf

    folder = HERE.parent / "fuzz" / "seeds" / "gguf"
    folder.mkdir(parents=True, exist_ok=True)

    def save(name, arch, keys, tensors):
        writer = gguf.GGUFWriter(folder / name, arch)
        for key, value in keys:
            getattr(writer, "add_" + key)(*value)
        for tensor, kind, shape in tensors:
            array = numpy.arange(math.prod(shape), dtype=numpy.float32).reshape(shape) / 8
            if tensor == "rope_freqs.weight":
                array = factors(types.SimpleNamespace(head_dim=4, rope_parameters={**LLAMA3, "rope_theta": 500.0, "original_max_position_embeddings": 16}))
            if kind.name in TYPES:
                writer.add_tensor(tensor, gguf.quants.quantize(array, kind), raw_dtype=kind)
            else:
                writer.add_tensor(tensor, numpy.zeros(gguf.quants.quant_shape_to_byte_shape(shape, kind), numpy.uint8), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    kinds = gguf.GGMLQuantizationType
    model = [("block_count", [1]), ("context_length", [8]), ("embedding_length", [32]), ("feed_forward_length", [4]), ("head_count", [2]),
             ("key_length", [4]), ("value_length", [4]), ("layer_norm_rms_eps", [1e-5]), ("rope_freq_base", [500.0])]
    tokenizer = [("tokenizer_model", ["gpt2"]), ("token_list", [["a", "b"]]), ("token_types", [[1, 3]]), ("token_scores", [[0.0, -1.0]]),
                 ("token_merges", [["a b"]]), ("bos_token_id", [1]), ("add_bos_token", [True]), ("chat_template", ["{{x}}"])]
    projections = [("token_embd.weight", kinds.F16, (2, 32)), ("rope_freqs.weight", kinds.F32, (2,)), ("blk.0.attn_q.weight", kinds.Q8_0, (8, 32)),
                   ("blk.0.attn_k.weight", kinds.MXFP4, (8, 32)), ("output_norm.weight", kinds.F32, (32,))]
    save("llama.gguf", "llama", model + tokenizer, [p for p in projections if p[0] != "rope_freqs.weight"])
    save("factors.gguf", "llama", model, projections)
    save("qwen3.gguf", "qwen3", model + tokenizer, [("token_embd.weight", kinds.Q4_0, (2, 32)), ("output.weight", kinds.BF16, (2, 32))])
    values = [("uint8", ["u8", 1]), ("int8", ["i8", -1]), ("uint16", ["u16", 2]), ("int16", ["i16", -2]), ("uint32", ["u32", 3]),
              ("int32", ["i32", -3]), ("float32", ["f32", 0.5]), ("uint64", ["u64", 4]), ("int64", ["i64", -4]), ("float64", ["f64", 0.25]),
              ("bool", ["bool", True]), ("string", ["text", "t"]), ("array", ["bools", [True, False]]), ("array", ["floats", [0.5]])]
    save("types.gguf", "other", values, [(kind.name, kind, (1, 256)) for kind in kinds if kind.name not in ("F32", "F16", "F64", "I64", "I32")])
    good = (folder / "llama.gguf").read_bytes()
    (folder / "version2.gguf").write_bytes(good[:4] + b"\2\0\0\0" + good[8:])
    (folder / "cut.gguf").write_bytes(good[:-700])
    (folder / "big_endian.gguf").write_bytes(good[:4] + b"\0\0\0\3" + good[8:])
    (folder / "many_keys.gguf").write_bytes(good[:16] + b"\xff" * 8 + good[24:])


def blocks():
    """Blocks of numbers and their bytes in Q8_0 and Q4_0: chosen ones as hexadecimal digits, and the checksum of the bytes of many."""
    import gguf

    values = numpy.random.default_rng(3)
    ties = numpy.arange(-16, 16, dtype=numpy.float32) + 0.5
    chosen = [numpy.zeros(32), *(values.normal(size=32) * scale for scale in (1e-20, 1e-9, 1e-6, 1e-3, 1, 1e3, 1e5)), numpy.ones(32), -numpy.ones(32),
              numpy.tile([0.25, -0.25], 16), numpy.tile([-0.25, 0.25], 16), numpy.append(ties[:31], 127.0), numpy.append(ties[:31], -127.0),
              numpy.append(ties[:31] / 2, -8.0), numpy.append(ties[:31] / 2, 8.0), numpy.append(numpy.zeros(31), 3.0), numpy.append(numpy.zeros(31), -3.0),
              numpy.append(numpy.full(31, 0.49999997), -8.0), numpy.full(32, 6e-8), numpy.full(32, 5e5)]
    numbers_of = [numpy.asarray(block, dtype=numpy.float32) for block in chosen]
    state, many = 1, numpy.empty(32 * MANY_BLOCKS, dtype=numpy.float32)
    for i in range(many.size):
        state = (state * 1664525 + 1013904223) % 2**32
        many[i] = ((state >> 8) - 2**23) * 2.0 ** (i // 32 % 24 - 32)  # exact in float32
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0):
        for block in numbers_of:
            yield f"block {kind.name} {block.tobytes().hex()} {gguf.quants.quantize(block, kind).tobytes().hex()}"
        yield f"many {kind.name} {MANY_BLOCKS} {zlib.crc32(gguf.quants.quantize(many, kind).tobytes())}"


def compare_with_llama_cpp():
    from cyllama.llama import llama_cpp as cy

    class model_of(cy.LlamaModel):
        n_vocab = COMMON["vocab_size"]  # which cyllama 0.2.18 asks for and does not have

    worst = 0.0
    for line in (HERE / "gguf_files.txt").read_text().splitlines():
        kind, *words = line.split()
        if kind == "case":
            name = "-".join(words)
        elif kind == "tokens":
            tokens = [int(w) for w in words]
        elif kind == "logits":
            expected = numpy.array([float(w) for w in words]).reshape(len(tokens), -1)
            model = model_of(path_model=str(FILES / f"{name}.gguf"), params=cy.LlamaModelParams())
            context = cy.LlamaContext(model=model, params=cy.LlamaContextParams())
            off = 0.0
            for n in range(1, len(tokens) + 1):
                context.kv_cache_clear()
                context.decode(cy.llama_batch_get_one(tokens[:n], 0))
                off = max(off, abs(numpy.array(context.get_logits_ith(n - 1)) - expected[n - 1]).max() / abs(expected).max())
            print(f"{name}: {off:.2e}")
            worst = max(worst, off)
    print(f"worst {worst:.2e}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--llama-cpp"]:
        compare_with_llama_cpp()
    elif sys.argv[1:] == ["--blocks"]:
        lines = ["# SPDX-License-Identifier: MIT", "# Written by gguf_files.py --blocks with gguf 0.19.0: the type, 32 numbers and the bytes of their block; of many blocks the checksum."]
        (HERE / "gguf_blocks.txt").write_text("\n".join(lines + list(blocks())) + "\n")
    elif sys.argv[1:] == ["--seeds"]:
        save_seeds()
    else:
        FILES.mkdir(exist_ok=True)
        lines = ["# SPDX-License-Identifier: MIT", "# Written by gguf_files.py with gguf 0.19.0, torch 2.15 and transformers 5.24: of each file the checksums of the numbers of its",
                 "# tensors, the tokens, and transformers' logits of them; of each scale of MXFP4 the checksum of a block with all codes."]
        lines += [line for case in cases() for line in run(case)] + list(codes())
        (HERE / "gguf_files.txt").write_text("\n".join(lines) + "\n")
