// SPDX-License-Identifier: MIT
/// \file
/// Makes GGUF files for tests, also such as no program writes.
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

    template <class T>
    static std::string raw(const T& x) {
        return std::string(reinterpret_cast<const char*>(&x), sizeof x);
    }
    static std::string text(const std::string& s) { return raw(static_cast<std::uint64_t>(s.size())) + s; }

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
        set(name, raw(type) + raw(x));
    }
    void add(const std::string& name, const std::string& value) {
        set(name, raw(ht::gguf_value_type::text) + text(value));
    }
    template <class T>
    void add_array(const std::string& name, ht::gguf_value_type type, const std::vector<T>& all) {
        std::string value = raw(ht::gguf_value_type::array) + raw(type) + raw(static_cast<std::uint64_t>(all.size()));
        for (const T& x : all) value += raw(x);
        set(name, value);
    }
    void add_texts(const std::string& name, const std::vector<std::string>& all) {
        std::string value = raw(ht::gguf_value_type::array) + raw(ht::gguf_value_type::text) +
                            raw(static_cast<std::uint64_t>(all.size()));
        for (const std::string& x : all) value += text(x);
        set(name, value);
    }
    void add_tensor(const std::string& name, ht::ggml_type type, const std::vector<ht::extent>& shape,
                    const std::string& bytes) {
        tensors.push_back({name, static_cast<std::uint32_t>(type), {shape.rbegin(), shape.rend()}, bytes});
    }
    void remove_tensor(const std::string& name) {
        std::erase_if(tensors, [&](const tensor& t) { return t.name == name; });
    }

    std::string bytes() const {
        std::string head = "GGUF" + raw(version) + raw(static_cast<std::uint64_t>(tensors.size())) +
                           raw(static_cast<std::uint64_t>(keys.size()));
        for (const key& k : keys) head += text(k.name) + k.value;
        const std::uint64_t unit = alignment == 0 ? 1 : alignment;
        std::string data;
        for (const tensor& t : tensors) {
            data.resize(ht::round_up(data.size(), unit));
            head += text(t.name) + raw(static_cast<std::uint32_t>(t.extents.size()));
            for (const std::uint64_t e : t.extents) head += raw(e);
            head += raw(t.type) + raw(t.first == automatic ? static_cast<std::uint64_t>(data.size()) : t.first);
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
    for (const auto& [name, v] : file.metadata().values()) {
        const bool is_text = v.type == ht::gguf_value_type::text;
        if (v.is_array && is_text) {
            w.add_texts(name, v.texts);
        } else if (v.is_array) {
            w.set(name, w.raw(ht::gguf_value_type::array) + w.raw(v.type) + w.raw(v.count) + v.bytes);
        } else {
            w.set(name, w.raw(v.type) + (is_text ? w.text(v.bytes) : v.bytes));
        }
    }
    for (const ht::gguf_tensor& t : file.tensors()) {
        std::string bytes(static_cast<std::size_t>(t.bytes), '\0');
        file.read(t, bytes.data());
        w.add_tensor(t.name, t.type, t.shape, bytes);
    }
    return w;
}

}  // namespace support
