#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tokenizers of tokenizers 0.23.3 and what they make of texts.

    python3 tests/golden/tokenizer.py                  # writes tokenizers/, small ones trained on docs/; needs PyPI's tokenizers 0.23.3
    python3 tests/golden/tokenizer.py --large FOLDER MEGABYTES FILE...   # tokenizers of up to 60,000 tokens, and the ids of so many
                                                       # megabytes of these files and of random texts, for tests/programs/tokenizers.py

tokenizers/NAME.json has a tokenizer.json and, for each text of texts.json, its ids: with special tokens taken as such, and, where they are
others, as text (encode_special_tokens); "back" and "back_without" are the decoded texts where they are not the text itself.
"""
import json
import pathlib
import random
import struct
import sys
import zlib

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(__file__).parent / "tokenizers"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN3_5 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
WORD = r"[^\r\n\p{L}\p{N}]?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
CASES = (WORD + UPPER + "*" + LOWER + "+" + SHORT + "|" + WORD + UPPER + "+" + LOWER + "*" + SHORT
         + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def bytes_of(pattern=None, prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=pattern is None)


def steps(*patterns):
    return pre_tokenizers.Sequence([*map(split, patterns), bytes_of("")])


# name: normalizer, pre-tokenizer, tokens of a large one
BYTE_LEVEL = {
    "gpt2": (None, bytes_of(), 50000),
    "prefix_space": (None, bytes_of(prefix=True), 3000),
    "llama3": (None, steps(LLAMA3), 60000),
    "qwen2": (normalizers.NFC(), steps(QWEN2), 50000),
    "qwen3_5": (normalizers.NFC(), steps(QWEN3_5), 5000),
    "cases": (None, steps(CASES), 5000),
    "deepseek": (None, steps(*DEEPSEEK), 5000),
    "digits": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_of()]), 4000),
    "digits_together": (normalizers.NFD(), pre_tokenizers.Sequence([pre_tokenizers.Digits(), bytes_of()]), 1000),
    "few_bytes": (normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]), bytes_of(), 600),
}
BERT = {"bert": dict(lowercase=True), "bert_cased": dict(lowercase=False), "bert_accents": dict(lowercase=False, strip_accents=True)}


def make(name, texts, size):
    """A tokenizer of this many tokens, with added tokens of every kind."""
    if name in BERT:
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(**BERT[name]), pre_tokenizers.BertPreTokenizer()
        t.decoder = decoders.WordPiece()
        t.train_from_iterator(texts, trainers.WordPieceTrainer(
            vocab_size=size, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=200, show_progress=False))
        t.add_tokens([AddedToken("[MASK]", lstrip=True, special=True, normalized=False), AddedToken("Single", single_word=True),
                      AddedToken("caf\u00e9")])
        if name == "bert_cased":
            t.post_processor = processors.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]")))
        else:
            t.post_processor = processors.TemplateProcessing(
                single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                special_tokens=[(s, t.token_to_id(s)) for s in ("[CLS]", "[SEP]")])
        return t
    normalizer, pre_tokenizer, _ = BYTE_LEVEL[name]
    few = name == "few_bytes"
    t = Tokenizer(models.BPE(ignore_merges=name == "llama3", unk_token="<unk>" if few else None, fuse_unk=few))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer, t.decoder = pre_tokenizer, decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>"]
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, special_tokens=(["<unk>"] if few else []) + ([] if name == "qwen2" else special),
        initial_alphabet=[] if few else pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens(special)
    t.add_tokens([
        AddedToken("<think>", normalized=False), AddedToken("<think>x"), AddedToken("abcd"), AddedToken("bc", normalized=False),
        AddedToken("single", single_word=True, normalized=False), AddedToken("[L]", lstrip=True, normalized=False),
        AddedToken("[R]", rstrip=True, normalized=False), AddedToken("[B]", lstrip=True, rstrip=True, single_word=True),
        AddedToken("e\u0301t"), AddedToken("\u00e9u", normalized=False), AddedToken(" [S", normalized=False)])
    if name == "llama3":
        start = ("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B", special_tokens=[start])])
    return t


ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<think>", "<think>x", "abcd", "bc", "single", "[L]", "[R]",
         "[B]", "e\u0301t", "\u00e9t", "\u00e9u", " [S", "[MASK]", "[CLS]", "Single", "caf\u00e9", "CAFE\u0301", "single_", "_single", "singl\u00e9"]
BLANKS = ["\t", "\n", "\r", " ", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u1680", "\u180e", "\u2000", "\u200b", "\u2028", "\u202f", "\u205f",
          "\u3000", "\ufeff", " ", "  ", "   ", "\r\n"]
WORDS = ["'s", "'S", "'ll", "'LL", "'\u017f", "I'm", "don't", "123", "1234567", "\u0663\u0664", "\u00b2", "ABCD", "xbcd", "AbC", "HTTPServer", "...", "!!",
         "==", ">>", "/*", "  //", "/\n", ". ", "\u00e9", "e\u0301", "a\u0323\u0302", "\u01c6", "\u0130", "\u00df", "\ufb01", "\u2126", "\u212b", "\uac01",
         "\u1100\u1161\u11a8", "\u304b\u3099", "\u0958", "\U00011930\U00011938", "\U00011935\U00011930", "do not", "it ' s"]
BLOCKS = [(0, 0x80), (0, 0x250), (0x250, 0x530), (0x300, 0x370), (0x530, 0x800), (0x900, 0x1000), (0x1000, 0x1800), (0x1100, 0x1200),
          (0x1E00, 0x2400), (0x2000, 0x3000), (0x3000, 0x4000), (0x4E00, 0xA000), (0xA000, 0xD800), (0xAC00, 0xD7A4), (0xE000, 0x10000),
          (0x10000, 0x12000), (0x16000, 0x17000), (0x1D000, 0x1F000), (0x1F000, 0x20000), (0x20000, 0x30000), (0xE0000, 0xE1000), (0, 0x110000)]


def random_text(rng, parts):
    """Added tokens, blanks, words that patterns treat apart, and characters of some block."""
    made = []
    for _ in range(rng.randrange(1, parts)):
        kind = rng.random()
        if kind < 0.2:
            made.append(rng.choice(ADDED))
        elif kind < 0.4:
            made.append(rng.choice(BLANKS) * rng.choice([1, 1, 1, 2, 3]))
        elif kind < 0.6:
            made.append(rng.choice(WORDS))
        else:
            first, last = rng.choice(BLOCKS)
            made += [chr(c) for c in (rng.randrange(first, last) for _ in range(rng.randrange(1, 6))) if not 0xD800 <= c < 0xE000]
    return "".join(made)


def documents():
    return [p.read_text() for p in sorted((ROOT / "docs").glob("*.md"))]


def cases_of(t, texts):
    cases = []
    for text in texts:
        t.encode_special_tokens = False
        case = {"ids": t.encode(text).ids}
        t.encode_special_tokens = True
        plain = t.encode(text).ids
        if plain != case["ids"]:
            case["plain"] = plain
        for key, skip in (("back", False), ("back_without", True)):
            back = t.decode(case["ids"], skip_special_tokens=skip)
            if back != text:
                case[key] = back
        cases.append(case)
    return cases


PATTERNS = [
    r"\p{L}+", r"\p{Lu}\p{Ll}*", r"\P{L}+", r"[^\p{L}\s]+", r"\s+", r"\S+", r"\d{2,3}", r"\D+", r"[a-c]+|[x-z]?b", r"(?:ab|a)(?:c|bcd)", r"a(?=b)", r"a(?!b)",
    r"(?i:'[sdmt]|ll)", r"a++b|a+", r"[\r\n]*x", r"\u0041+", r"\x41|\x{3b1}", r"(a|b){2}", r"(?:ab){1,3}c?", r"a?b?c", r".b", r"[^a]b", r"\.|\-|\]",
    r"[\-\]\[]+", r"[a\-z]+", r"[a-]+", r"\p{^L}+", r"[\P{L}a]+", r"[\S\n]+", r"(?:(?:a|b)c|a)d?", "[\u4e00-\u9fa5]+", r"\p{Zs}+", r"\p{M}+|\p{S}", r"x*y", r"\s+(?!\S)|\s+", r"(?i:'s|k)",
]
PATTERN_TEXTS = ["abc aabbcc", "abcd abbcd ab", "A\u03b1AAB", "a  b \n c\n\n", "'s'LL'\u017f", "12345 6", "x--y]][a-z", "xxxy yx", "\u4e2d\u6587 text\u3000\u00a0", "e\u0301 + 1", "caddbcd", "'\u017fx 'Sx k\u212aKq"]
NORMALIZERS = {
    "nfc": normalizers.NFC(), "nfd": normalizers.NFD(), "lower_case": normalizers.Lowercase(), "bert": normalizers.BertNormalizer(),
    "bert_cased": normalizers.BertNormalizer(lowercase=False), "bert_accents": normalizers.BertNormalizer(lowercase=False, strip_accents=True),
}


def small():
    assert tokenizers.__version__ == "0.23.3"
    rng = random.Random(1)
    texts = [random_text(rng, 9) for _ in range(60)] + ["", " ", "a" * 101, "ab" * 40, " " * 50 + "x", "abcd<think>xbcabcd", "The policy's 1,024 numbers.",
                                                        "a [R] \n b[R]  [L]c [L]d [B] e", "\u24d0single single\u24d0 \u200dsingle single. single2", "x\u0301[B]x [B]  [B]"]
    trained_on = documents()
    FOLDER.mkdir(exist_ok=True)

    def put(name, value):
        (FOLDER / name).write_text(json.dumps(value, separators=(",", ":")) + "\n")

    put("texts.json", texts)
    for name in [*BYTE_LEVEL, *BERT]:
        t = make(name, trained_on, 480 if name in BERT else 300 if name == "few_bytes" else 400)
        made = json.loads(t.to_str())
        if name == "digits":  # as older versions wrote it
            made["model"]["merges"] = [" ".join(m) for m in made["model"]["merges"]]
            del made["model"]["type"]
        put(name + ".json", {"tokenizer": made, "cases": cases_of(t, texts)})
    patterns = []
    for pattern in PATTERNS:
        pieces = pre_tokenizers.Split(Regex(pattern), "isolated")
        patterns.append([pattern, [[s for s, _ in pieces.pre_tokenize_str(text)] for text in PATTERN_TEXTS]])
    put("patterns.json", {"texts": PATTERN_TEXTS, "patterns": patterns})
    # all but surrogates and the many of which each is treated as its neighbours are
    code_points = [chr(c) for c in range(0xE1000) if not (0x3500 <= c < 0x9F00 or 0xB000 <= c < 0xD700 or 0xD800 <= c < 0xE000
                                                          or 0xE100 <= c < 0xF800 or 0x20100 <= c < 0x2F800 or 0x2FB00 <= c < 0xE0000)]
    sums = {}
    for name, normalizer in NORMALIZERS.items():
        # between two letters of which marks and Hangul's parts can become a part
        sums[name] = zlib.crc32("\n".join(normalizer.normalize_str(a + c + b) for c in code_points for a, b in (("e", "\u0301"), ("\u1100", "\u11a8"))).encode())
    broken = [[b.hex(), b.decode("utf-8", "replace")] for b in (
        b"\xed\xa0\x80", b"\xed\x9f\xbf", b"\xed\xbf\xbfa", b"\xf4\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80", b"\xe0\x9f\xbf",
        b"\xe0\xa0\x80", b"\xc1\x80", b"\xc2\x80", b"\xf5\x80\x80\x80", b"\x80\xbf", b"\xe4\xb8", b"\xe4\xb8a", b"\xf0\x9f\x98", b"\xf0\x9f\x98\xf0\x9f\x98\x80")]
    for _ in range(300):
        data = bytearray(random_text(rng, 5).encode())
        for _ in range(rng.randrange(1, 4)):
            if data:
                data[rng.randrange(len(data))] = rng.choice([0x80, 0xBF, 0xC0, 0xC3, 0xE0, 0xED, 0xF0, 0xF4, 0xF5, 0xFF, 0x41])
        data = data[: rng.randrange(len(data) + 1)]
        broken.append([data.hex(), data.decode("utf-8", "replace")])
    put("unicode.json", {"sums": sums, "broken": broken})


def large(folder, megabytes, files):
    """texts: the length of each in 4 bytes, then its bytes; NAME.ids: for each text the number of ids, then the ids, in 4 bytes each."""
    rng = random.Random(2)
    folder.mkdir(exist_ok=True)
    read = [pathlib.Path(f).read_bytes().decode("utf-8", "replace") for f in files]
    names = [*BYTE_LEVEL, *BERT]
    made = {}
    for name in names:
        made[name] = make(name, read, BYTE_LEVEL[name][2] if name in BYTE_LEVEL else 20000)
        made[name].save(str(folder / f"{name}.json"))
    texts, size = [], 0
    while size < megabytes * 1e6 / len(names):
        if rng.random() < 0.5:
            text = random_text(rng, 200)
        else:
            source = rng.choice(read)
            first = rng.randrange(max(1, len(source)))
            text = source[first:first + rng.randrange(1, 20000)]
        texts.append(text)
        size += len(text.encode())
    with open(folder / "texts", "wb") as out:
        for text in texts:
            out.write(struct.pack("<I", len(text.encode())) + text.encode())
    for name in names:
        with open(folder / f"{name}.ids", "wb") as out:
            for first in range(0, len(texts), 1000):
                for encoding in made[name].encode_batch_fast(texts[first:first + 1000]):
                    out.write(struct.pack(f"<{len(encoding.ids) + 1}I", len(encoding.ids), *encoding.ids))
    print(f"{len(texts)} texts of {size / 1e6:.1f} MB for each of {len(names)} tokenizers")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--large"]:
        large(pathlib.Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
    else:
        small()
