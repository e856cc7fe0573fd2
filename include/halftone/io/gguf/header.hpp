// SPDX-License-Identifier: MIT
/// \file
/// Reads and checks the header of a GGUF file: its keys, and the names, types, shapes and places of its tensors.
///
///     const detail::gguf_header header = detail::read_gguf("model.gguf", size, read);    // read(to, first, count) copies bytes
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <halftone/io/gguf/metadata.hpp>
#include <halftone/io/gguf/types.hpp>
#include <halftone/io/safetensors.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A tensor in a GGUF file.
struct gguf_tensor {
    std::string name;
    ggml_type type = ggml_type::f32;
    std::vector<extent>
        shape;                ///< row-major, as everywhere in halftone; the file has the extents in the opposite order
    std::uint64_t first = 0;  ///< its first byte in the file
    std::uint64_t bytes = 0;

    /// The number of elements.
    std::size_t count() const {
        const detail::ggml_type_entry& e = detail::entry_of(type);
        return static_cast<std::size_t>(bytes) / e.bytes * static_cast<std::size_t>(e.elements);
    }
};

namespace detail {

struct gguf_header {
    std::uint32_t version = 3;
    std::uint64_t alignment = 32;
    gguf_metadata metadata;
    std::vector<gguf_tensor> tensors;  ///< by their places
};

/// Goes through the bytes of a header one by one. Nothing is allocated before its size has been compared with the file's.
template <class Read>
class gguf_cursor {
  public:
    gguf_cursor(const std::string& where, std::uint64_t size, const Read& read)
        : where_(where), size_(size), read_(read) {}

    std::uint64_t position() const { return position_; }
    const std::string& where() const { return where_; }
    /// Throws gguf_error if the file has not as many times so many bytes more, or the header is too long.
    void expect(std::uint64_t count, std::uint64_t each) const {
        if (count > (size_ - position_) / each)
            fail<gguf_error>(where_, ": ends at byte ", size_, ", within its header: it is truncated");
        if (count > most_header_bytes / each || position_ + count * each > most_header_bytes)
            fail<gguf_error>(where_, ": a header of more than ", most_header_bytes, " bytes");
    }
    void bytes(char* to, std::uint64_t count) {
        expect(count, 1);
        while (count > 0) {
            if (position_ - begin_ >= held_.size()) fill();
            const std::uint64_t at = position_ - begin_, some = std::min<std::uint64_t>(count, held_.size() - at);
            std::memcpy(to, held_.data() + at, static_cast<std::size_t>(some));
            to += some, position_ += some, count -= some;
        }
    }
    template <class T>
    T number() {
        char of_number[sizeof(T)];
        bytes(of_number, sizeof(T));
        T x;
        std::memcpy(&x, of_number, sizeof x);
        return x;
    }
    std::string text() {
        const auto length = number<std::uint64_t>();
        expect(length, 1);
        std::string result(static_cast<std::size_t>(length), '\0');
        bytes(result.data(), length);
        return result;
    }

  private:
    void fill() {
        begin_ = position_;
        held_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(size_ - position_, 1 << 16)));
        read_(held_.data(), begin_, held_.size());
    }

    const std::string& where_;
    std::uint64_t size_, position_ = 0, begin_ = 0;  // begin_: of the bytes that are held
    const Read& read_;
    std::string held_;
};

/// A type of a value. `key` is for the messages.
template <class Cursor>
gguf_value_type read_gguf_type(Cursor& in, const std::string& key) {
    const auto number = in.template number<std::uint32_t>();
    if (number >= gguf_value_types)
        fail<gguf_error>(in.where(), ": ", shown(key), " has a value of type ", number, "; expected 0 to ",
                         gguf_value_types - 1);
    return static_cast<gguf_value_type>(number);
}
template <class Cursor>
gguf_value read_gguf_value(Cursor& in, const std::string& key) {
    gguf_value v;
    v.type = read_gguf_type(in, key);
    if (v.type == gguf_value_type::array) {
        v.is_array = true;
        v.type = read_gguf_type(in, key);
        if (v.type == gguf_value_type::array) fail<gguf_error>(in.where(), ": ", shown(key), " is an array of arrays");
        v.count = in.template number<std::uint64_t>();
    }
    const std::size_t each = gguf_value_entries[static_cast<std::size_t>(v.type)].bytes;
    in.expect(v.count, each);
    if (v.type != gguf_value_type::text) {
        v.bytes.resize(static_cast<std::size_t>(v.count) * each);
        in.bytes(v.bytes.data(), v.bytes.size());
        const auto is_no_bool = [](char c) { return c != 0 && c != 1; };
        if (v.type == gguf_value_type::boolean && std::any_of(v.bytes.begin(), v.bytes.end(), is_no_bool))
            fail<gguf_error>(in.where(), ": ", shown(key), " has a bool that is neither 0 nor 1");
    } else if (!v.is_array) {
        v.bytes = in.text();
    } else {
        for (std::uint64_t i = 0; i < v.count; ++i) v.texts.push_back(in.text());
    }
    return v;
}

/// A tensor, its place relative to the first tensor's. The number of bytes of its blocks is checked not to overflow.
template <class Cursor>
gguf_tensor read_gguf_tensor(Cursor& in) {
    gguf_tensor t;
    t.name = in.text();
    constexpr std::size_t most_name = 63;  // as in ggml
    if (t.name.empty() || t.name.size() > most_name || t.name.find('\0') != std::string::npos)
        fail<gguf_error>(in.where(), ": a tensor's name is '", shown(t.name), "' of ", t.name.size(),
                         " bytes; expected 1 to ", most_name, ", none of them 0");
    const std::string what = in.where() + ": '" + shown(t.name) + "'";
    const auto axes = in.template number<std::uint32_t>();
    if (axes > 4) fail<gguf_error>(what, " has ", axes, " axes; expected at most 4");
    for (std::uint32_t i = 0; i < axes; ++i) {
        const auto e = in.template number<std::uint64_t>();
        if (e > INT64_MAX) fail<gguf_error>(what, " has an extent of ", e, "; expected less than 2^63");
        t.shape.insert(t.shape.begin(), static_cast<extent>(e));
    }
    const auto type = in.template number<std::uint32_t>();
    const ggml_type_entry* const entry = find_ggml_type(type);
    if (entry == nullptr) fail<gguf_error>(what, " is of type ", type, ", which ggml 0.12 does not have");
    t.type = entry->type;
    std::vector<extent> blocks = t.shape;
    if (blocks.empty()) blocks.push_back(1);
    if (blocks.back() % entry->elements != 0)
        fail<gguf_error>(what, " has rows of ", blocks.back(), " elements; expected a multiple of the ",
                         entry->elements, " of ", entry->name);
    blocks.back() /= entry->elements;
    if (!checked_bytes(blocks, entry->bytes, t.bytes))
        fail<gguf_error>(what, ": ", shape_text(t.shape), " has more elements than fit in memory");
    t.first = in.template number<std::uint64_t>();
    return t;
}

/// Throws gguf_error if tensors overlap, are behind a gap, or end behind the file's end; makes their places those in the file. ggml
/// refuses gaps, too; what is behind the last tensor it does not look at.
inline void place_gguf_tensors(const std::string& where, gguf_header& header, std::uint64_t begin, std::uint64_t size) {
    const auto before = [](const gguf_tensor& a, const gguf_tensor& b) {
        return a.first != b.first ? a.first < b.first : a.bytes < b.bytes;
    };
    std::stable_sort(header.tensors.begin(), header.tensors.end(), before);
    std::uint64_t end = 0;
    for (gguf_tensor& t : header.tensors) {
        const std::string what = where + ": '" + shown(t.name) + "'";
        if (t.first % header.alignment != 0)
            fail<gguf_error>(what, " begins at ", t.first, ", which is no multiple of the alignment, ",
                             header.alignment);
        if (t.first < end)
            fail<gguf_error>(what, " begins at ", t.first, ", inside of another tensor, which ends at ", end);
        if (t.first != detail::round_up(end, header.alignment))
            fail<gguf_error>(what, " begins at ", t.first, ", behind a gap from ", end);
        if (begin > size || t.first > size - begin || t.bytes > size - begin - t.first)
            fail<gguf_error>(what, " ends behind the file's ", size, " bytes: it is truncated");
        end = t.first + t.bytes;
        t.first += begin;
    }
}

/// The version, and nothing else of the first bytes. Throws gguf_error for another file, or one of a version that is not read.
template <class Cursor>
std::uint32_t read_gguf_version(Cursor& in) {
    char magic[4];
    in.bytes(magic, sizeof magic);
    if (std::memcmp(magic, "GGUF", sizeof magic) != 0)
        fail<gguf_error>(in.where(), ": does not begin as a GGUF file does");
    const auto version = in.template number<std::uint32_t>();
    if (version != 0 && (version & 0xffffff) == 0)
        fail<gguf_error>(in.where(), ": a big-endian file; expected a little-endian one");
    if (version != 2 && version != 3) fail<gguf_error>(in.where(), ": version ", version, "; expected 2 or 3");
    return version;
}

/// The bytes of which each tensor's place is a multiple.
inline std::uint64_t gguf_alignment(const gguf_metadata& keys) {
    const auto alignment = keys.integer("general.alignment", 32);
    if (alignment < 1 || alignment > 1 << 30 || (alignment & (alignment - 1)) != 0)
        fail<gguf_error>(keys.where(), ": general.alignment is ", alignment, "; expected a power of 2, at most 2^30");
    return static_cast<std::uint64_t>(alignment);
}

/// Reads and checks the header of a file of `size` bytes, which read(to, first, count) copies. `where` begins the messages.
template <class Read>
gguf_header read_gguf(const std::string& where, std::uint64_t size, const Read& read) {
    constexpr std::uint64_t least = 24, least_key = 8 + 4 + 1, least_tensor = 8 + 4 + 4 + 8;
    std::string begin(static_cast<std::size_t>(std::min<std::uint64_t>(size, 64)), '\0');
    read(begin.data(), 0, begin.size());
    refuse_lfs_pointer<gguf_error>(where, begin);
    if (size < least) fail<gguf_error>(where, ": ", size, " bytes; expected ", least, " or more, a GGUF file's header");
    gguf_cursor<Read> in(where, size, read);
    gguf_header header;
    header.version = read_gguf_version(in);
    const auto tensors = in.template number<std::uint64_t>(), keys = in.template number<std::uint64_t>();
    in.expect(tensors, least_tensor);
    in.expect(keys, least_key);
    gguf_keys values;
    for (std::uint64_t i = 0; i < keys; ++i) {
        const std::string key = in.text();
        if (key.empty() || key.size() > 65535)
            fail<gguf_error>(where, ": a key of ", key.size(), " bytes; expected 1 to 65535");
        if (!values.emplace(key, read_gguf_value(in, key)).second)
            fail<gguf_error>(where, ": has the key '", shown(key), "' twice");
    }
    header.metadata = gguf_metadata(where, std::move(values));
    header.alignment = gguf_alignment(header.metadata);
    std::set<std::string> names;
    for (std::uint64_t i = 0; i < tensors; ++i) {
        header.tensors.push_back(read_gguf_tensor(in));
        const std::string& name = header.tensors.back().name;
        if (!names.insert(name).second) fail<gguf_error>(where, ": has the tensor '", shown(name), "' twice");
    }
    place_gguf_tensors(where, header, detail::round_up(in.position(), header.alignment), size);
    return header;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
