# SPDX-License-Identifier: MIT
"""Makes the tables of Unicode in include/halftone/data/tokenizers: what tokenizers 0.23.3 knows of each code point, found by asking it.

    python3 unicode.py ../../include/halftone/data/tokenizers

needs tokenizers 0.23.3 and unicodedata2 16.0.0. Categories in patterns are those of Unicode 16. NFC and NFD know the characters of
Unicode 9, BERT's marks, punctuation and control characters are those of an older version still, and lower case is that of Unicode 17; so all
but the categories and the decomposition of a character that tokenizers decomposes comes from tokenizers itself.
"""
import pathlib
import sys

import tokenizers
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = "Cn Cc Cf Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs".split()
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def category(c):
    return unicodedata2.category(chr(c))


def runs(points, value=lambda c: True):
    """[first, last, value] of consecutive code points with one value."""
    result = []
    for c in sorted(points):
        if result and result[-1][1] == c - 1 and result[-1][2] == value(c):
            result[-1][1] = c
        else:
            result.append([c, c, value(c)])
    return result


def table(out, comment, declaration, items):
    out.append(f"\n/// {comment}\ninline constexpr {declaration}[] = {{")
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 140:
            out.append(line)
            line = "   "
        line += " " + item + ","
    out += [line, "};"]


def text(*numbers):
    return "{" + ", ".join(f"{n:#x}" for n in numbers) + "}"


def write(path, what, out):
    head = f"""// SPDX-License-Identifier: MIT
/// \\file
/// {what}
/// Made by tests/golden/unicode.py with tokenizers {tokenizers.__version__} and the data of Unicode {unicodedata2.unidata_version}.
#pragma once

#include <cstdint>

// clang-format off
namespace halftone {{
inline namespace HALFTONE_ABI {{
namespace detail::unicode {{"""
    tail = "\n}  // namespace detail::unicode\n}  // namespace HALFTONE_ABI\n}  // namespace halftone\n// clang-format on\n"
    path.write_text(head.replace("#include <cstdint>", "#include <cstdint>\n\n#include <halftone/config.hpp>") + "\n".join(out) + "\n" + tail)


def main(folder):
    assert tokenizers.__version__ == "0.23.3" and unicodedata2.unidata_version == "16.0.0"
    for name in CATEGORIES:  # the categories of patterns are those of Unicode 16
        if name == "Cs":
            continue
        split = pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed")
        assert all((not split.pre_tokenize_str(chr(c))) == (category(c) == name) for c in CODE_POINTS), name

    def changed(normalizer):
        made = {c: normalizer.normalize_str(chr(c)) for c in CODE_POINTS}
        return {c: s for c, s in made.items() if s != chr(c)}

    out = []
    table(out, "Categories: 32 times the first code point that has it, and the category's number.", "std::uint32_t category_runs",
          [f"{32 * first + CATEGORIES.index(of):#x}" for first, _, of in runs(range(0x110000), category)])
    write(folder / "category_tables.hpp", "The general categories of Unicode's code points.", out)

    decomposed, composed = changed(normalizers.NFD()), changed(normalizers.NFC())
    items = []
    for c in decomposed:
        if 0xAC00 <= c < 0xD7A4:
            continue  # syllables of Hangul, which a formula decomposes
        parts = [int(p, 16) for p in unicodedata2.decomposition(chr(c)).split()]
        assert 1 <= len(parts) <= 2
        items.append((c, parts[0], parts[1] if len(parts) == 2 else 0, int(c in composed)))
    last_of_all = chr(0x345)  # of class 240, the highest: it moves behind every other mark
    nfd = normalizers.NFD()
    marks = [c for c in CODE_POINTS if unicodedata2.combining(chr(c))
             and (nfd.normalize_str(last_of_all + chr(c)) != last_of_all + chr(c) or c == 0x345)]
    out = []
    table(out, "Canonical decompositions: a character, its one or two parts, and whether NFC leaves it decomposed.",
          "std::uint32_t decompositions", [f"{a:#x},{b:#x},{c:#x},{d}" for a, b, c, d in items])
    table(out, "Combining classes other than 0: the first and the last code point, and the class.", "std::uint32_t combining_runs",
          [f"{a:#x},{b:#x},{v}" for a, b, v in runs(marks, lambda c: unicodedata2.combining(chr(c)))])
    write(folder / "normalization_tables.hpp", "What NFC and NFD need, of Unicode 9.", out)

    bert = lambda **on: normalizers.BertNormalizer(**{**dict.fromkeys(
        ["clean_text", "handle_chinese_chars", "strip_accents", "lowercase"], False), **on})
    removed = [c for c, s in changed(bert(clean_text=True)).items() if s == ""]
    accents = [c for c, s in changed(bert(strip_accents=True)).items() if s == ""]
    spaced = changed(bert(handle_chinese_chars=True))
    splits = pre_tokenizers.BertPreTokenizer()
    punctuation = [c for c in CODE_POINTS if len(splits.pre_tokenize_str("a" + chr(c) + "b")) == 3]
    lower = changed(normalizers.Lowercase())
    long_ones = {c: s for c, s in lower.items() if len(s) != 1}
    assert long_ones == {0x130: "i\u0307"}
    out = []
    for name, comment, points in [
            ("bert_removed_runs", "What BERT's normalizer removes as control characters.", removed),
            ("bert_mark_runs", "The marks that it strips.", accents),
            ("bert_spaced_runs", "The ideographs around which it puts blanks.", spaced),
            ("bert_punctuation_runs", "The punctuation that BERT's pre-tokenizer parts.", punctuation)]:
        table(out, comment + " The first and the last code point of each run.", f"std::uint32_t {name}",
              [f"{a:#x},{b:#x}" for a, b, _ in runs(points)])
    steps = []
    for c in sorted(lower):
        if c in long_ones:
            continue
        delta = ord(lower[c]) - c
        last = steps[-1] if steps else None
        if last and last[3] == delta and (c - last[1] == last[2] or (last[0] == last[1] and c - last[1] in (1, 2))):
            last[2], last[1] = c - last[1], c
        else:
            steps.append([c, c, 1, delta])
    table(out, "Lower case: the first and the last code point of each run, the step in it, and what to add. "
          "U+0130 becomes the two of 'i' and U+0307 besides.", "std::int32_t lower_runs",
          [f"{a:#x},{b:#x},{s},{d}" for a, b, s, d in steps])
    write(folder / "bert_tables.hpp", "The classes of code points that BERT's normalizer and pre-tokenizer tell apart.", out)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
