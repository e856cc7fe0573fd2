// SPDX-License-Identifier: MIT
/// \file
/// Reads .safetensors files: a header of names, types, shapes and places, then the tensors' bytes.
///
///     const ht::safetensors_file file("model.safetensors");
///     for (const ht::tensor_info& t : file.tensors()) std::cout << t.name << ' ' << ht::name(t.type) << '\n';
///     const std::vector<float> bias = file.read<float>("fc.bias");              // BF16 say, converted to float
///
/// The format: eight bytes, the header's length as a little-endian integer, at most 100,000,000; the header, a JSON object
/// {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"KEY": "TEXT", ...}}; then
/// the tensors' bytes, little-endian and in row-major order, which fill the rest of the file without gaps.
///
/// A file is checked when it is opened: nothing is allocated by what its header says before that has been compared with
/// the file's size. What it refuses: a header that is longer than the file or than the limit, or no such object; names
/// that occur twice; unknown types; negative extents, and shapes whose number of bytes overflows or differs from its
/// place's; places outside the file, that overlap, and gaps between them; names and metadata that are not UTF-8.
/// Addresses need no alignment, since bytes are copied. A tensor of a type that halftone does not convert, F4 or C64 say,
/// does not keep the others from being read: only its own numbers are refused. Reads files with PyTorch's and Hugging Face's tensors unchanged.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <halftone/io/dtype.hpp>
#include <halftone/io/file.hpp>
#include <halftone/io/strict_json.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A tensor in a file.
struct tensor_info {
    std::string name;
    dtype type = dtype::f32;
    std::vector<extent> shape;
    std::uint64_t first = 0;  ///< its first byte in the file
    std::uint64_t bytes = 0;

    /// The number of elements.
    std::size_t count() const {
        return static_cast<std::size_t>(bytes / bits_of(type) * 8 + bytes % bits_of(type) * 8 / bits_of(type));
    }
};

/// The longest header of a .safetensors file, as in the format's first implementation.
inline constexpr std::uint64_t most_header_bytes = 100'000'000;

namespace detail {

/// "(2, 3)"
inline std::string shape_text(const std::vector<extent>& shape) {
    std::string text = "(";
    for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    return text + ")";
}

/// The bytes of a tensor, or false if the number does not fit into 63 bits.
inline bool checked_bytes(const std::vector<extent>& shape, std::size_t each, std::uint64_t& bytes) {
    std::uint64_t product = each;
    bool is_empty = false;
    constexpr std::uint64_t most = INT64_MAX;
    for (const extent e : shape) {
        if (e < 0) return false;
        if (e == 0) {
            is_empty = true;
        } else if (product > most / static_cast<std::uint64_t>(e)) {
            return false;
        } else {
            product *= static_cast<std::uint64_t>(e);
        }
    }
    bytes = is_empty ? 0 : product;
    return true;
}

/// The bytes of a tensor of a type. False if the number does not fit into 63 bits, or if packed elements end within a byte.
inline bool checked_bytes(const std::vector<extent>& shape, dtype type, std::uint64_t& bytes) {
    const std::size_t bits = bits_of(type);
    if (bits % 8 == 0) return checked_bytes(shape, bits / 8, bytes);
    std::uint64_t count = 0;
    if (!checked_bytes(shape, 1, count) || count % 8 * bits % 8 != 0) return false;
    bytes = count / 8 * bits + count % 8 * bits / 8;
    return true;
}

/// The contents of a header.
struct safetensors_header {
    std::vector<tensor_info> tensors;  ///< by their places
    std::map<std::string, std::string> metadata;
};

inline std::uint64_t unsigned_of(const nlohmann::json& j, const std::string& what) {
    if (!j.is_number_unsigned() || j.get<std::uint64_t>() > INT64_MAX)
        fail<safetensors_error>(what, " is not an integer from 0 to 2^63 - 1");
    return j.get<std::uint64_t>();
}

inline tensor_info tensor_of(const std::string& where, const std::string& name, const nlohmann::json& j) {
    const std::string what = where + ": '" + shown(name) + "'";
    if (!j.is_object()) fail<safetensors_error>(what, " is not described by an object");
    for (const char* const field : {"dtype", "shape", "data_offsets"}) {
        if (!j.contains(field)) fail<safetensors_error>(what, " has no ", field);
    }
    if (!j["dtype"].is_string()) fail<safetensors_error>(what, ": dtype is not a string");
    const auto& type = j["dtype"].get_ref<const std::string&>();
    const int known = dtype_named(type);
    if (known < 0)
        fail<safetensors_error>(what, ": dtype is '", shown(type),
                                "'; expected one of safetensors' types, F32 or BF16 say");
    tensor_info t{name, static_cast<dtype>(known), {}, 0, 0};
    if (!j["shape"].is_array() || j["shape"].size() > 64) fail<safetensors_error>(what, ": shape is not a list of at most 64 extents");
    for (const nlohmann::json& e : j["shape"]) t.shape.push_back(static_cast<extent>(unsigned_of(e, what + ": an extent")));
    const nlohmann::json& places = j["data_offsets"];
    if (!places.is_array() || places.size() != 2) fail<safetensors_error>(what, ": data_offsets is not a pair");
    t.first = unsigned_of(places[0], what + ": a place");
    const std::uint64_t end = unsigned_of(places[1], what + ": a place");
    if (end < t.first) fail<safetensors_error>(what, " ends at ", end, ", before it begins at ", t.first);
    std::uint64_t count = 0;
    if (bits_of(t.type) % 8 != 0 && checked_bytes(t.shape, 1, count) && count % 8 * bits_of(t.type) % 8 != 0)
        fail<safetensors_error>(what, ": ", count, " elements of ", type, " end within a byte");
    if (!checked_bytes(t.shape, t.type, t.bytes))
        fail<safetensors_error>(what, ": ", shape_text(t.shape), " has more elements than fit in memory");
    if (t.bytes != end - t.first) {
        fail<safetensors_error>(what, " has ", end - t.first, " bytes; expected ", t.bytes, " for ", type, ' ',
                                shape_text(t.shape));
    }
    return t;
}

/// Parses a header whose tensors take `room` bytes after it. Places in the result are relative to the tensors' first
/// byte. `where` begins the messages.
inline safetensors_header parse_safetensors(const std::string& where, std::string_view text, std::uint64_t room) {
    if (text.empty() || text.front() != '{') fail<safetensors_error>(where, ": the header does not begin with '{'");
    const nlohmann::json j = parse_json<safetensors_error>(where + ": the header", text, 4);
    if (!j.is_object()) fail<safetensors_error>(where, ": the header is not an object");
    safetensors_header header;
    for (const auto& [name, value] : j.items()) {
        if (name != "__metadata__") {
            header.tensors.push_back(tensor_of(where, name, value));
            continue;
        }
        if (value.is_null()) continue;  // as the safetensors package reads it: there is none
        if (!value.is_object()) fail<safetensors_error>(where, ": __metadata__ is not an object");
        for (const auto& [key, each] : value.items()) {
            if (!each.is_string()) fail<safetensors_error>(where, ": __metadata__: '", shown(key), "' is not a string");
            header.metadata[key] = each.template get<std::string>();
        }
    }
    const auto before = [](const tensor_info& a, const tensor_info& b) {
        return a.first != b.first ? a.first < b.first : a.bytes < b.bytes;
    };
    std::stable_sort(header.tensors.begin(), header.tensors.end(), before);
    std::uint64_t end = 0;
    for (const tensor_info& t : header.tensors) {
        if (t.first != end) {
            fail<safetensors_error>(where, ": '", shown(t.name), "' begins at ", t.first,
                                    t.first < end ? ", inside of another tensor, which ends at " : ", behind a gap from ", end);
        }
        end = t.first + t.bytes;
    }
    if (end != room) {
        fail<safetensors_error>(where, ": its tensors end after ", end, " bytes, the file after ", room,
                                end > room ? ": it is truncated" : ": the rest belongs to none");
    }
    return header;
}

inline std::uint64_t little_endian(const std::array<unsigned char, 8>& bytes) {
    std::uint64_t value = 0;
    for (int i = 7; i >= 0; --i) value = value << 8 | bytes[static_cast<std::size_t>(i)];
    return value;
}

/// Reads and checks the header of `size` bytes, which read(to, first, count) copies. Places in the result are relative to
/// the first of these bytes.
template <class Read>
safetensors_header read_safetensors(const std::string& where, std::uint64_t size, const Read& read) {
    std::array<unsigned char, 8> prefix{};
    if (size < prefix.size())
        fail<safetensors_error>(where, ": ", size, " bytes; expected 8 or more, the header's length");
    read(prefix.data(), 0, prefix.size());
    const std::uint64_t length = little_endian(prefix);
    if (length > most_header_bytes) {
        std::string begin(static_cast<std::size_t>(std::min<std::uint64_t>(size, 64)), '\0');
        read(begin.data(), 0, begin.size());
        refuse_lfs_pointer<safetensors_error>(where, begin);
        fail<safetensors_error>(where, ": a header of ", length, " bytes; expected ", most_header_bytes, " at most");
    }
    if (length > size - prefix.size())
        fail<safetensors_error>(where, ": a header of ", length, " bytes in a file of ", size, ": it is truncated");
    std::string text(static_cast<std::size_t>(length), '\0');
    read(text.data(), prefix.size(), text.size());
    const std::uint64_t begin = prefix.size() + length;
    safetensors_header header = parse_safetensors(where, text, size - begin);
    for (tensor_info& t : header.tensors) t.first += begin;
    return header;
}

}  // namespace detail

/// A .safetensors file, opened for reading and checked.
class safetensors_file {
  public:
    /// Throws io_error if the file cannot be read, and safetensors_error if its contents violate the format.
    explicit safetensors_file(const std::filesystem::path& path) : file_(path) {
        header_ = detail::read_safetensors(path.string(), file_.size(), [this](void* to, std::uint64_t first, std::size_t bytes) {
            file_.read(to, first, bytes);
        });
        for (std::size_t i = 0; i < header_.tensors.size(); ++i) by_name_.emplace(header_.tensors[i].name, i);
    }

    const std::filesystem::path& path() const { return file_.path(); }
    /// The file's size in bytes.
    std::uint64_t size() const { return file_.size(); }
    /// The tensors, in the order of their places.
    const std::vector<tensor_info>& tensors() const { return header_.tensors; }
    const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
    /// The tensor with this name; nullptr if there is none.
    const tensor_info* find(const std::string& name) const {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
    }

    /// Copies a tensor's bytes; `to` has room for t.bytes. Throws io_error.
    void read(const tensor_info& t, void* to) const { file_.read(to, t.first, static_cast<std::size_t>(t.bytes)); }
    /// Copies so many of a tensor's bytes, from byte `first` on. Throws io_error.
    void read(const tensor_info& t, std::uint64_t first, std::size_t bytes, void* to) const {
        file_.read(to, t.first + first, bytes);
    }
    /// A tensor's elements, in row-major order, converted if both types are floating-point ones. Throws safetensors_error
    /// for a name that the file does not have and for a type that is not converted, and io_error.
    template <stored_type T>
    std::vector<T> read(const std::string& name) const {
        const tensor_info* const t = find(name);
        if (t == nullptr) fail<safetensors_error>(path().string(), ": there is no '", detail::shown(name), "'");
        if (t->type != dtype_of<T> && !(is_float(t->type) && is_float(dtype_of<T>))) {
            fail<safetensors_error>(path().string(), ": '", detail::shown(name), "' is ", halftone::name(t->type),
                                    ", which is not converted to ", halftone::name(dtype_of<T>));
        }
        std::vector<std::byte> bytes(static_cast<std::size_t>(t->bytes));
        read(*t, bytes.data());
        std::vector<T> values(t->count());
        if constexpr (std::is_same_v<T, bool>) {
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = bytes[i] != std::byte{0};
        } else {
            convert(t->type, bytes.data(), dtype_of<T>, reinterpret_cast<std::byte*>(values.data()), values.size());
        }
        return values;
    }

  private:
    detail::input_file file_;
    detail::safetensors_header header_;
    std::map<std::string, std::size_t> by_name_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
