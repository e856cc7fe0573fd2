// SPDX-License-Identifier: MIT
/// \file
/// Writes .safetensors files (safetensors.hpp), completely or not at all.
///
///     const std::vector<float> values(6);
///     ht::write_safetensors("one.safetensors", {ht::tensor_source::of<float>("w", {2, 3}, values)}, {{"format", "pt"}});
///
/// Tensors of wide types stand first, then those of narrow ones, each by name, and the header is padded with spaces to a
/// multiple of 8 bytes: so every tensor is aligned for its type. The same tensors give the same bytes.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <halftone/io/safetensors.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A tensor to be written: its description, and a function that copies its bytes [first, first + count) to `to`.
struct tensor_source {
    std::string name;
    dtype type = dtype::f32;
    std::vector<extent> shape;
    std::function<void(std::byte* to, std::size_t first, std::size_t count)> read;

    /// A tensor in host memory, in row-major order, which must stay valid until it has been written. Throws shape_error
    /// if the number of values is not the shape's.
    template <stored_type T>
    static tensor_source of(std::string name, std::vector<extent> shape, std::span<const T> values) {
        std::uint64_t bytes = 0;
        if (!detail::checked_bytes(shape, sizeof(T), bytes) || bytes != values.size_bytes())
            fail<shape_error>("tensor_source: ", values.size(), " values for ", name, ", which is ", detail::shape_text(shape));
        const auto* const from = reinterpret_cast<const std::byte*>(values.data());
        return {std::move(name), dtype_of<T>, std::move(shape), [from](std::byte* to, std::size_t first, std::size_t count) {
                    if (count != 0) std::memcpy(to, from + first, count);
                }};
    }
};

namespace detail {

inline std::uint64_t bytes_of(const tensor_source& t) {
    std::uint64_t bytes = 0;
    if (!checked_bytes(t.shape, t.type, bytes))
        fail<shape_error>("write_safetensors: ", shown(t.name), ' ', shape_text(t.shape), ": no valid shape");
    return bytes;
}

/// The order of tensors in a file.
inline std::vector<const tensor_source*> in_file_order(const std::vector<tensor_source>& tensors) {
    std::vector<const tensor_source*> order;
    for (const tensor_source& t : tensors) order.push_back(&t);
    std::sort(order.begin(), order.end(), [](const tensor_source* a, const tensor_source* b) {
        const std::size_t x = bits_of(a->type), y = bits_of(b->type);
        return x != y ? x > y : a->name < b->name;
    });
    return order;
}

inline std::string header_text(const std::vector<const tensor_source*>& order,
                               const std::map<std::string, std::string>& metadata) {
    nlohmann::ordered_json j = nlohmann::ordered_json::object();
    if (!metadata.empty()) j["__metadata__"] = metadata;
    std::uint64_t end = 0;
    std::map<std::string, int> names;
    for (const tensor_source* t : order) {
        if (++names[t->name] > 1 || t->name == "__metadata__")
            fail<argument_error>("write_safetensors: a tensor cannot be called ", shown(t->name), names[t->name] > 1 ? " twice" : "");
        const std::uint64_t begin = std::exchange(end, end + bytes_of(*t));
        j[t->name] = {{"dtype", name(t->type)}, {"shape", t->shape}, {"data_offsets", {begin, end}}};
    }
    std::string text;
    try {
        text = j.dump();
    } catch (const nlohmann::json::exception&) {
        fail<argument_error>("write_safetensors: a name or metadata is not UTF-8");
    }
    text.append((8 - text.size() % 8) % 8, ' ');
    if (text.size() > most_header_bytes)
        fail<argument_error>("write_safetensors: a header of ", text.size(), " bytes; expected ", most_header_bytes, " at most");
    return text;
}

/// Calls f(bytes, count) for the bytes of tensors, a megabyte at a time.
template <class F>
void visit_pieces(const std::vector<const tensor_source*>& order, const F& f) {
    std::vector<std::byte> piece;
    for (const tensor_source* t : order) {
        const auto bytes = static_cast<std::size_t>(bytes_of(*t));
        for (std::size_t done = 0; done < bytes;) {
            const std::size_t count = std::min(bytes - done, std::size_t{1} << 20);
            piece.resize(count);
            t->read(piece.data(), done, count);
            f(piece.data(), count);
            done += count;
        }
    }
}

/// Writes a whole .safetensors file to `out`, without committing it.
inline void write_safetensors_to(durable_file& out, const std::vector<tensor_source>& tensors,
                                 const std::map<std::string, std::string>& metadata) {
    const auto order = in_file_order(tensors);
    const std::string header = header_text(order, metadata);
    std::array<unsigned char, 8> length{};
    for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
    out.write(length.data(), length.size());
    out.write(header.data(), header.size());
    visit_pieces(order, [&out](const std::byte* bytes, std::size_t count) { out.write(bytes, count); });
}

}  // namespace detail

/// Writes a file, which replaces an earlier one when it is complete (file.hpp). Throws io_error, and argument_error for
/// names that occur twice or are not UTF-8; the earlier file then stays.
inline void write_safetensors(const std::filesystem::path& path, const std::vector<tensor_source>& tensors,
                              const std::map<std::string, std::string>& metadata = {}) {
    static_cast<void>(detail::header_text(detail::in_file_order(tensors), metadata));  // refused before there is a file
    detail::durable_file out(path);
    detail::write_safetensors_to(out, tensors, metadata);
    out.commit();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
