// SPDX-License-Identifier: MIT
/// \file
/// Single tensors in NumPy's .npy files, both ways: C order, little-endian, versions 1.0 to 3.0 of the format.
///
///     ht::write_npy("scores.npy", scores);                           // a host_tensor
///     const auto back = ht::read_npy<float, 2>("scores.npy");        // numpy.save's files, too
///     const ht::npy_array any = ht::read_npy("any.npy");             // of a type and rank that are not known before
///
/// The format: "\x93NUMPY", two bytes of version, the header's length (2 bytes little-endian, 4 from version 2 on), the
/// header, a Python dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, then the elements, which
/// fill the rest of the file. A file is checked before anything is allocated for its elements. NumPy has no bfloat16 and
/// no 8-bit floats: these are written as float32, which is exact.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <halftone/io/dtype.hpp>
#include <halftone/io/file.hpp>
#include <halftone/tensor/host_tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The contents of a .npy file.
struct npy_array {
    dtype type = dtype::f32;
    std::vector<extent> shape;
    std::vector<std::byte> bytes;  ///< the elements, in row-major order
};

namespace detail {

struct npy_type {
    const char* descr;
    dtype type;
};
inline constexpr npy_type npy_types[]{{"|b1", dtype::boolean}, {"|u1", dtype::u8}, {"|i1", dtype::i8},  {"<i2", dtype::i16},
                                      {"<u2", dtype::u16},     {"<f2", dtype::f16}, {"<i4", dtype::i32}, {"<u4", dtype::u32},
                                      {"<f4", dtype::f32},     {"<f8", dtype::f64}, {"<i8", dtype::i64}, {"<u8", dtype::u64}};

/// Reads the dictionary of a header, piece by piece.
class npy_parser {
  public:
    npy_parser(std::string where, std::string_view text) : where_(std::move(where)), text_(text) {}

    npy_array parse() {
        npy_array a;
        bool has[3] = {};
        expect('{');
        while (!take('}')) {
            const std::string key = quoted();
            expect(':');
            if (key == "descr") {
                a.type = type_of(once(has[0], key), quoted());
            } else if (key == "fortran_order") {
                once(has[1], key);
                if (word() != "False") refuse("fortran_order is not False; save numpy.ascontiguousarray(a)");
            } else if (key == "shape") {
                once(has[2], key);
                a.shape = extents();
            } else {
                refuse("it has the key '" + key.substr(0, 40) + "'; expected descr, fortran_order and shape");
            }
            if (!take(',')) {
                expect('}');
                break;
            }
        }
        skip();
        if (at_ != text_.size()) refuse("there is something after the dictionary");
        if (!has[0] || !has[1] || !has[2]) refuse("descr, fortran_order or shape is missing");
        return a;
    }

  private:
    [[noreturn]] void refuse(const std::string& why) const { fail<npy_error>(where_, ": the header: ", why); }
    const std::string& once(bool& has, const std::string& key) const {
        if (has) refuse(key + " occurs twice");
        has = true;
        return key;
    }
    void skip() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    }
    bool take(char c) {
        skip();
        if (at_ == text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    void expect(char c) {
        if (!take(c)) refuse(std::string("expected '") + c + "' at byte " + std::to_string(at_));
    }
    std::string quoted() {
        const char quote = take('\'') ? '\'' : '"';
        if (quote == '"') expect('"');
        const std::size_t end = text_.find(quote, at_);
        if (end == std::string_view::npos) refuse("a string has no end");
        const std::string text(text_.substr(at_, end - at_));
        at_ = end + 1;
        return text;
    }
    std::string_view word() {
        skip();
        const std::size_t first = at_;
        while (at_ < text_.size() && text_[at_] >= 'A' && text_[at_] <= 'z') ++at_;
        return text_.substr(first, at_ - first);
    }
    std::vector<extent> extents() {
        std::vector<extent> shape;
        expect('(');
        while (!take(')')) {
            skip();
            extent value = 0;
            const std::size_t first = at_;
            for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
                const int digit = text_[at_] - '0';
                if (value > (INT64_MAX - digit) / 10) refuse("an extent is 2^63 or more");
                value = 10 * value + digit;
            }
            if (at_ == first) refuse("an extent is no integer of 0 or more");
            if (shape.size() == 64) refuse("more than 64 axes");
            shape.push_back(value);
            if (!take(',')) {
                expect(')');
                break;
            }
        }
        return shape;
    }
    dtype type_of(const std::string&, const std::string& descr) const {
        for (const npy_type& t : npy_types) {
            if (descr == t.descr) return t.type;
        }
        const std::string said = "descr is '" + descr.substr(0, 20);
        if (descr == "<f1" || (descr.size() > 2 && descr[1] == 'V')) {
            refuse(said +
                   "': of types beside its own, as ml_dtypes' bfloat16, NumPy stores the size alone; "
                   "save a.astype('<f4')");
        }
        refuse(said + "'; expected a little-endian floating-point type, an integer or a bool, '<f4' say");
    }

    std::string where_;
    std::string_view text_;
    std::size_t at_ = 0;
};

/// The bytes of elements, or npy_error if they are not those of the file.
inline std::uint64_t npy_bytes(const std::string& where, const npy_array& a, std::uint64_t room) {
    std::uint64_t bytes = size_of(a.type);
    bool is_empty = false;
    for (const extent e : a.shape) {
        is_empty = is_empty || e == 0;
        if (e != 0 && bytes > static_cast<std::uint64_t>(INT64_MAX) / static_cast<std::uint64_t>(e))
            fail<npy_error>(where, ": its shape has more elements than fit in memory");
        bytes *= e == 0 ? 1 : static_cast<std::uint64_t>(e);
    }
    if (is_empty) bytes = 0;
    if (bytes != room) fail<npy_error>(where, ": ", room, " bytes of elements; expected ", bytes, " for its shape and type");
    return bytes;
}

inline std::string npy_header(dtype type, const std::vector<extent>& shape) {
    const char* descr = nullptr;
    for (const npy_type& t : npy_types) {
        if (t.type == type) descr = t.descr;
    }
    std::string text = sentence("{'descr': '", descr, "', 'fortran_order': False, 'shape': (");
    for (std::size_t i = 0; i < shape.size(); ++i)
        text += (i == 0 ? "" : " ") + std::to_string(shape[i]) + (i + 1 < shape.size() || i == 0 ? "," : "");
    text += "), }";
    // The elements begin at a multiple of 64 bytes, as numpy.save has it.
    text.append(63 - (text.size() + 10) % 64, ' ');
    return text + '\n';
}

/// Reads and checks an array in `size` bytes, which read(to, first, count) copies.
template <class Read>
npy_array read_npy_from(const std::string& where, std::uint64_t size, const Read& read) {
    unsigned char prefix[12] = {};
    constexpr unsigned char magic[]{0x93, 'N', 'U', 'M', 'P', 'Y'};
    if (size < 10) fail<npy_error>(where, ": ", size, " bytes; expected a .npy file's 10 or more");
    read(prefix, 0, std::min<std::size_t>(sizeof prefix, static_cast<std::size_t>(size)));
    if (std::memcmp(prefix, magic, sizeof magic) != 0) fail<npy_error>(where, ": does not begin as a .npy file does");
    const int version = prefix[6];
    if (version < 1 || version > 3 || prefix[7] != 0)
        fail<npy_error>(where, ": version ", version, '.', static_cast<int>(prefix[7]), "; expected 1.0, 2.0 or 3.0");
    const std::uint64_t before = version == 1 ? 10 : 12;
    std::uint64_t length = prefix[8] + std::uint64_t{prefix[9]} * 256;
    if (version > 1) length += std::uint64_t{prefix[10]} << 16 | std::uint64_t{prefix[11]} << 24;
    if (length > (1 << 20) || before + length > size)
        fail<npy_error>(where, ": a header of ", length, " bytes in a file of ", size, "; expected 2^20 at most");
    std::string text(static_cast<std::size_t>(length), '\0');
    read(text.data(), before, text.size());
    npy_array a = npy_parser(where, text).parse();
    a.bytes.resize(static_cast<std::size_t>(npy_bytes(where, a, size - before - length)));
    read(a.bytes.data(), before + length, a.bytes.size());
    return a;
}

}  // namespace detail

/// Reads a file of any type and rank. Throws io_error, and npy_error if the contents violate the format or are in Fortran
/// order, big-endian, or of a type that is none of dtype's.
inline npy_array read_npy(const std::filesystem::path& path) {
    const detail::input_file in(path);
    return detail::read_npy_from(path.string(), in.size(), [&in](void* to, std::uint64_t first, std::size_t bytes) {
        in.read(to, first, bytes);
    });
}

/// Reads a file of this rank, converted to T if both types are floating-point ones. Throws as read_npy(path) does, and
/// npy_error for another rank or type.
template <stored_type T, int Rank>
host_tensor<T, Rank> read_npy(const std::filesystem::path& path) {
    static_assert(!std::is_same_v<T, bool>, "halftone: read_npy: read bools as ht::npy_array, whose bytes they are");
    const npy_array a = read_npy(path);
    if (static_cast<int>(a.shape.size()) != Rank)
        fail<npy_error>(path.string(), ": ", a.shape.size(), " axes; expected ", Rank);
    if (a.type != dtype_of<T> && !(is_float(a.type) && is_float(dtype_of<T>)))
        fail<npy_error>(path.string(), ": ", name(a.type), " is not converted to ", name(dtype_of<T>));
    shape<Rank> s{};
    for (int axis = 0; axis < Rank; ++axis) s[axis] = a.shape[static_cast<std::size_t>(axis)];
    host_tensor<T, Rank> result(s);
    convert(a.type, a.bytes.data(), dtype_of<T>, reinterpret_cast<std::byte*>(result.data()),
            static_cast<std::size_t>(result.size()));
    return result;
}

/// Writes elements in row-major order, version 1.0; an earlier file is replaced when the new one is complete. Throws
/// io_error, and shape_error if the number of values is not the shape's.
template <stored_type T>
void write_npy(const std::filesystem::path& path, const std::vector<extent>& shape, std::span<const T> values) {
    extent count = 1;
    for (const extent e : shape) count *= e;
    if (count != static_cast<extent>(values.size()))
        fail<shape_error>("write_npy: ", values.size(), " values; expected ", count, ", the shape's");
    constexpr bool widens = sizeof(T) < 4 && is_float(dtype_of<T>) && dtype_of<T> != dtype::f16;
    constexpr dtype type = widens ? dtype::f32 : dtype_of<T>;
    const std::string header = detail::npy_header(type, shape);
    if (header.size() > 65535) fail<shape_error>("write_npy: ", shape.size(), " axes");
    const unsigned char prefix[]{0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<unsigned char>(header.size() & 255),
                                 static_cast<unsigned char>(header.size() >> 8)};
    detail::durable_file out(path);
    out.write(prefix, sizeof prefix);
    out.write(header.data(), header.size());
    if constexpr (widens) {
        const std::vector<float> wide(values.begin(), values.end());
        out.write(wide.data(), wide.size() * sizeof(float));
    } else {
        out.write(values.data(), values.size_bytes());
    }
    out.commit();
}
/// Writes a tensor in host memory; ht::to_host gives one of a device's.
template <stored_type T, int Rank>
void write_npy(const std::filesystem::path& path, const host_tensor<T, Rank>& tensor) {
    std::vector<extent> shape;
    for (int axis = 0; axis < Rank; ++axis) shape.push_back(tensor.shape()[axis]);
    write_npy<T>(path, shape, std::span<const T>(tensor.data(), static_cast<std::size_t>(tensor.size())));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
