// SPDX-License-Identifier: MIT
/// \file
/// Makes GGUF files for tests, also such as no program writes, and such as ht::write_gguf refuses; where it need not it has the library
/// write.
///
///     support::gguf_writer w;
///     w.add("llama.block_count", ht::gguf_value_type::u32, std::uint32_t{2});
///     w.add_tensor("x", ht::ggml_type::f32, {2, 3}, bytes);
///     folder.write("model.gguf", w.bytes());
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <halftone/io/gguf.hpp>
#include <halftone/io/gguf/writer.hpp>

namespace support {

namespace ht = halftone;

/// The header of a file in memory, whose name is "file".
inline ht::detail::gguf_header parsed_gguf(const std::string& bytes) {
    return ht::detail::read_gguf("file", bytes.size(), [&bytes](void* to, std::uint64_t first, std::size_t count) {
        if (first > bytes.size() || count > bytes.size() - first) throw "read beyond the end";
        std::memcpy(to, bytes.data() + first, count);
    });
}

struct gguf_writer {
    struct key {
        std::string name, value;  ///< the value with its type, as in the file
    };
    struct tensor {
        std::string name;
        std::uint32_t type;
        std::vector<std::uint64_t> extents;  ///< as in the file: the fastest first
        std::string bytes;
        std::uint64_t first = automatic;
    };
    static constexpr std::uint64_t automatic = ~std::uint64_t{0};

    std::uint32_t version = 3;
    std::uint32_t alignment = 32;
    std::vector<key> keys;
    std::vector<tensor> tensors;

    /// A number, a text or a value as in the file.
    template <class T>
    static std::string stored(const T& x) {
        std::string bytes;
        ht::detail::append_gguf(bytes, x);
        return bytes;
    }

    /// Adds a key, or replaces its value.
    void set(const std::string& name, const std::string& value) {
        remove(name);
        keys.push_back({name, value});
    }
    void remove(const std::string& name) {
        std::erase_if(keys, [&](const key& k) { return k.name == name; });
    }
    template <class T>
    void add(const std::string& name, ht::gguf_value_type type, T x) {
        if constexpr (sizeof(T) == sizeof alignment) {
            if (name == "general.alignment") std::memcpy(&alignment, &x, sizeof alignment);
        }
        set(name, stored(type) + stored(x));
    }
    void add(const std::string& name, const std::string& value) { set(name, stored(ht::gguf_value_of(value))); }
    template <class T>
    void add_array(const std::string& name, ht::gguf_value_type type, const std::vector<T>& all) {
        std::string value =
            stored(ht::gguf_value_type::array) + stored(type) + stored(static_cast<std::uint64_t>(all.size()));
        for (const T& x : all) value += stored(x);
        set(name, value);
    }
    void add_texts(const std::string& name, const std::vector<std::string>& all) {
        set(name, stored(ht::gguf_value_of(all)));
    }
    void add_tensor(const std::string& name, ht::ggml_type type, const std::vector<ht::extent>& shape,
                    const std::string& bytes) {
        tensors.push_back({name, static_cast<std::uint32_t>(type), {shape.rbegin(), shape.rend()}, bytes});
    }
    void remove_tensor(const std::string& name) {
        std::erase_if(tensors, [&](const tensor& t) { return t.name == name; });
    }

    std::string bytes() const {
        std::string head = "GGUF" + stored(version) + stored(static_cast<std::uint64_t>(tensors.size())) +
                           stored(static_cast<std::uint64_t>(keys.size()));
        for (const key& k : keys) head += stored(k.name) + k.value;
        const std::uint64_t unit = alignment == 0 ? 1 : alignment;
        std::string data;
        for (const tensor& t : tensors) {
            data.resize(ht::round_up(data.size(), unit));
            head += stored(t.name) + stored(static_cast<std::uint32_t>(t.extents.size()));
            for (const std::uint64_t e : t.extents) head += stored(e);
            head += stored(t.type) + stored(t.first == automatic ? static_cast<std::uint64_t>(data.size()) : t.first);
            data += t.bytes;
        }
        head.resize(ht::round_up(head.size(), unit));
        return head + data;
    }
    ht::detail::gguf_header header() const { return parsed_gguf(bytes()); }
};

/// The keys and tensors of a file.
inline gguf_writer copy_of(const ht::gguf_file& file) {
    gguf_writer w;
    for (const auto& [name, v] : file.metadata().values()) w.set(name, w.stored(v));
    for (const ht::gguf_tensor& t : file.tensors()) {
        std::string bytes(static_cast<std::size_t>(t.bytes), '\0');
        file.read(t, bytes.data());
        w.add_tensor(t.name, t.type, t.shape, bytes);
    }
    return w;
}

}  // namespace support
