// SPDX-License-Identifier: MIT
/// \file
/// Writes GGUF files, completely or not at all: keys and values, then tensors, as gguf.hpp reads them.
///
///     const std::vector<float> values(64);
///     ht::write_gguf("one.gguf", {{"general.architecture", ht::gguf_value_of("llama")}},
///                    {ht::gguf_source::of("w", ht::ggml_type::q8_0, {2, 32}, values)});
///
/// Files are of version 3; keys stand in the order of their names, tensors in the given one, each at a multiple of the key
/// general.alignment, or of 32, and the last one is padded, too. The same keys and tensors give the same bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <halftone/io/file.hpp>
#include <halftone/io/gguf/header.hpp>
#include <halftone/io/gguf/metadata.hpp>
#include <halftone/io/gguf/quantise.hpp>
#include <halftone/io/lost_numbers.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Numbers as those of a type of GGUF files, each rounded once; whole blocks. Throws argument_error for a type that is not written, and
/// for numbers that it does not hold. `what` begins the messages.
inline void ggml_bytes_of(const std::string& what, ggml_type type, const float* from, std::size_t count,
                          std::byte* to) {
    if (!is_written(type))
        fail<argument_error>(what, " of type ", name(type), "; expected F32, F16, BF16, Q8_0 or Q4_0");
    std::optional<double> lost;
    if (entry_of(type).elements == 1) {
        const auto* const values = reinterpret_cast<const std::byte*>(from);
        convert(dtype::f32, values, converted_type(type), to, count);
        lost = first_lost(value_traits_of<float>, values, traits_of(converted_type(type)), to, count);
    } else {
        const float* const beyond =
            std::find_if_not(from, from + count, [type](float x) { return is_quantised(type, x); });
        if (beyond != from + count)
            lost = *beyond;
        else
            quantise(type, from, count, to);
    }
    if (lost) fail<argument_error>(what, " has ", *lost, ", which ", name(type), " does not hold");
}

}  // namespace detail

/// A tensor to be written to a GGUF file.
struct gguf_source {
    std::string name;
    ggml_type type = ggml_type::f32;
    std::vector<extent> shape;  ///< row-major, as everywhere in halftone
    /// Copies the bytes of elements [first, first + count), whole blocks, to `to`.
    std::function<void(std::byte* to, std::size_t first, std::size_t count)> read;

    /// A tensor in host memory, in row-major order, which must stay valid until it has been written: as F32, F16, BF16, Q8_0 or
    /// Q4_0. Throws shape_error if the number of values is not the shape's; writing it throws argument_error for another type, and for
    /// numbers that the type does not hold.
    static gguf_source of(std::string name, ggml_type type, std::vector<extent> shape, std::span<const float> values) {
        std::uint64_t bytes = 0;
        if (!detail::checked_bytes(shape, sizeof(float), bytes) || bytes != values.size_bytes())
            fail<shape_error>("gguf_source: ", values.size(), " values for ", name, ", which is ",
                              detail::shape_text(shape));
        const std::string what = "write_gguf: " + name;
        return {std::move(name), type, std::move(shape),
                [what, type, from = values.data()](std::byte* to, std::size_t first, std::size_t count) {
                    detail::ggml_bytes_of(what, type, from + first, count, to);
                }};
    }
};

namespace detail {

/// Numbers and texts as they stand in a header.
template <class T>
void append_gguf(std::string& to, const T& x) {
    to.append(reinterpret_cast<const char*>(&x), sizeof x);
}
inline void append_gguf(std::string& to, const std::string& text) {
    append_gguf(to, static_cast<std::uint64_t>(text.size()));
    to += text;
}
/// A value with its type.
inline void append_gguf(std::string& to, const gguf_value& v) {
    if (v.is_array) append_gguf(to, gguf_value_type::array);
    append_gguf(to, v.type);
    if (v.is_array) append_gguf(to, v.count);
    if (v.type == gguf_value_type::text && !v.is_array) return append_gguf(to, v.bytes);
    to += v.bytes;
    for (const std::string& text : v.texts) append_gguf(to, text);
}

/// The bytes of a tensor in a file; of a shape that has no whole number of blocks any number.
inline std::uint64_t gguf_bytes_of(const gguf_source& t) {
    const ggml_type_entry& e = entry_of(t.type);
    std::uint64_t elements = 1;
    for (const extent n : t.shape) elements *= static_cast<std::uint64_t>(n);
    return elements / static_cast<std::uint64_t>(e.elements) * e.bytes;
}

/// What stands before the first tensor, padded, and the alignment.
struct gguf_beginning {
    std::string bytes;
    std::uint64_t alignment;
};
/// Throws gguf_error for keys and tensors that ht::gguf_file would refuse.
inline gguf_beginning gguf_beginning_of(const gguf_keys& keys, const std::vector<gguf_source>& tensors) {
    const std::string where = "write_gguf";
    const std::uint64_t alignment = gguf_alignment(gguf_metadata(where, keys));
    std::string head = "GGUF";
    append_gguf(head, std::uint32_t{3});
    append_gguf(head, static_cast<std::uint64_t>(tensors.size()));
    append_gguf(head, static_cast<std::uint64_t>(keys.size()));
    for (const auto& [key, value] : keys) {
        append_gguf(head, key);
        append_gguf(head, value);
    }
    std::uint64_t end = 0;
    for (const gguf_source& t : tensors) {
        if (find_ggml_type(static_cast<std::uint32_t>(t.type)) == nullptr)
            fail<gguf_error>(where, ": '", shown(t.name), "' is of type ", static_cast<std::uint32_t>(t.type),
                             ", which ggml 0.12 does not have");
        append_gguf(head, t.name);
        append_gguf(head, static_cast<std::uint32_t>(t.shape.size()));
        for (auto n = t.shape.rbegin(); n != t.shape.rend(); ++n) append_gguf(head, static_cast<std::uint64_t>(*n));
        append_gguf(head, t.type);
        append_gguf(head, end);
        end += round_up(gguf_bytes_of(t), alignment);
    }
    head.resize(static_cast<std::size_t>(round_up(std::uint64_t{head.size()}, alignment)));
    read_gguf(where, head.size() + end, [&head](void* to, std::uint64_t first, std::size_t count) {
        // The reader asks for the bytes of a header, in blocks that may reach into the tensors.
        const std::size_t begin = std::min(static_cast<std::size_t>(first), head.size()),
                          some = std::min(count, head.size() - begin);
        std::memcpy(to, head.data() + begin, some);
        std::memset(static_cast<char*>(to) + some, 0, count - some);
    });
    return {std::move(head), alignment};
}

/// Calls f(bytes, count) for the bytes of tensors and what pads them, a megabyte at a time.
template <class F>
void visit_gguf_pieces(const std::vector<gguf_source>& tensors, std::uint64_t alignment, const F& f) {
    std::vector<std::byte> piece;
    for (const gguf_source& t : tensors) {
        const ggml_type_entry& e = entry_of(t.type);
        const auto blocks = static_cast<std::size_t>(gguf_bytes_of(t) / e.bytes),
                   each = static_cast<std::size_t>(e.elements);
        for (std::size_t done = 0; done < blocks;) {
            const std::size_t some = std::min(blocks - done, (std::size_t{1} << 20) / e.bytes);
            piece.resize(some * e.bytes);
            t.read(piece.data(), done * each, some * each);
            f(piece.data(), piece.size());
            done += some;
        }
        const std::uint64_t bytes = blocks * e.bytes;
        piece.assign(static_cast<std::size_t>(round_up(bytes, alignment) - bytes), std::byte{0});
        f(piece.data(), piece.size());
    }
}

}  // namespace detail

/// Writes a file, which replaces an earlier one when it is complete (file.hpp). Throws io_error, gguf_error for keys and tensors that
/// ht::gguf_file would refuse, and what the tensors throw; the earlier file then stays.
inline void write_gguf(const std::filesystem::path& path, const gguf_keys& keys,
                       const std::vector<gguf_source>& tensors) {
    const detail::gguf_beginning begin = detail::gguf_beginning_of(keys, tensors);
    detail::durable_file out(path);
    out.write(begin.bytes.data(), begin.bytes.size());
    detail::visit_gguf_pieces(tensors, begin.alignment,
                              [&out](const std::byte* bytes, std::size_t count) { out.write(bytes, count); });
    out.commit();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
