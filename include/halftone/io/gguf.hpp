// SPDX-License-Identifier: MIT
/// \file
/// Reads GGUF files, the models of llama.cpp: keys and values, then tensors, in one file.
///
///     const ht::gguf_file file("model.gguf");
///     file.metadata().text("general.architecture");                                // "llama"
///     for (const ht::gguf_tensor& t : file.tensors()) std::cout << t.name << ' ' << ht::name(t.type) << '\n';
///     const std::vector<float> norm = file.read<float>("output_norm.weight");      // of any type that halftone converts
///
/// The format: "GGUF", the version, the numbers of tensors and of keys; keys with typed values; each tensor's name, extents, type and
/// place; then the tensors, each at a multiple of the key general.alignment, or of 32. All is little-endian. Versions 2 and 3 are read.
///
/// A file is checked when it is opened: nothing is allocated by what its header says before that has been compared with the file's size.
/// What it refuses: a header that is longer than the file, or than 100,000,000 bytes; keys and tensors that occur twice; unknown types;
/// arrays of arrays; rows that are no whole number of blocks; shapes whose number of bytes overflows; places outside the file, that
/// overlap, that are not aligned, and gaps between them. A tensor of a type that halftone does not convert, Q4_K say, does not keep the
/// others from being read. ht::load_pretrained reads whole models (io/pretrained/llama.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <halftone/io/file.hpp>
#include <halftone/io/gguf/header.hpp>
#include <halftone/io/gguf/tokenizer_keys.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A GGUF file, opened for reading and checked.
class gguf_file {
  public:
    /// Throws io_error if the file cannot be read, and gguf_error if its contents violate the format.
    explicit gguf_file(const std::filesystem::path& path) : file_(path) {
        header_ = detail::read_gguf(
            path.string(), file_.size(),
            [this](void* to, std::uint64_t first, std::size_t bytes) { file_.read(to, first, bytes); });
        for (std::size_t i = 0; i < header_.tensors.size(); ++i) by_name_.emplace(header_.tensors[i].name, i);
    }

    const std::filesystem::path& path() const { return file_.path(); }
    /// The file's size in bytes.
    std::uint64_t size() const { return file_.size(); }
    std::uint32_t version() const { return header_.version; }
    const gguf_metadata& metadata() const { return header_.metadata; }
    /// The tensors, in the order of their places.
    const std::vector<gguf_tensor>& tensors() const { return header_.tensors; }
    /// The tensor with this name; nullptr if there is none.
    const gguf_tensor* find(const std::string& name) const {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
    }

    /// Copies a tensor's bytes; `to` has room for t.bytes. Throws io_error.
    void read(const gguf_tensor& t, void* to) const { file_.read(to, t.first, static_cast<std::size_t>(t.bytes)); }
    /// Copies `count` numbers from number `first` on, both multiples of a block's, as converted_type(t.type). Throws io_error; gguf_error
    /// for a type that halftone does not convert, and for MXFP4 beyond float's largest number, or NaN; argument_error for parts of blocks
    /// and for numbers that the tensor does not have.
    void read(const gguf_tensor& t, std::size_t first, std::size_t count, void* to) const {
        check_converted(t);
        const detail::ggml_type_entry& e = detail::entry_of(t.type);
        const auto each = static_cast<std::size_t>(e.elements);
        if (first % each != 0 || count % each != 0 || first > t.count() || count > t.count() - first)
            fail<argument_error>("gguf_file: ", count, " numbers from ", first, " on of ", t.count(),
                                 "; expected multiples of ", each, " within them");
        if (each == 1) return file_.read(to, t.first + first * e.bytes, count * e.bytes);
        constexpr std::size_t most = std::size_t{1} << 15;  // blocks at a time: about 1 MB of Q8_0
        std::vector<std::byte> blocks(std::min(most, count / each) * e.bytes);
        auto* values = static_cast<float*>(to);
        for (std::size_t block = first / each, end = block + count / each; block < end;) {
            const std::size_t some = std::min(most, end - block);
            file_.read(blocks.data(), t.first + block * e.bytes, some * e.bytes);
            detail::dequantise(t.type, blocks.data(), some * each, values);
            check_finite(t, values, some * each);
            block += some, values += some * each;
        }
    }
    /// A tensor's numbers, in row-major order, each rounded once. Throws as the others do, and gguf_error for a name that the file does not
    /// have.
    template <class T>
        requires(is_float(dtype_of<T>))
    std::vector<T> read(const std::string& name)
    const {
        const gguf_tensor* const t = find(name);
        if (t == nullptr) fail<gguf_error>(path().string(), ": there is no '", detail::shown(name), "'");
        check_converted(*t);
        const dtype type = converted_type(t->type);
        std::vector<T> values(t->count());
        if (type == dtype_of<T>) {
            read(*t, 0, t->count(), values.data());
        } else {
            std::vector<std::byte> stored(t->count() * size_of(type));
            read(*t, 0, t->count(), stored.data());
            convert(type, stored.data(), dtype_of<T>, reinterpret_cast<std::byte*>(values.data()), values.size());
        }
        return values;
    }

  private:
    void check_converted(const gguf_tensor& t) const {
        if (!is_converted(t.type))
            fail<gguf_error>(path().string(), ": '", detail::shown(t.name), "' is ", halftone::name(t.type),
                             ", which halftone does not read; expected F32, F16, BF16, Q8_0, Q4_0 or MXFP4");
    }
    void check_finite(const gguf_tensor& t, const float* values, std::size_t count) const {
        if (t.type != ggml_type::mxfp4) return;
        if (!std::all_of(values, values + count, [](float x) { return std::isfinite(x); }))
            fail<gguf_error>(path().string(), ": '", detail::shown(t.name),
                             "' has scales with numbers beyond float's largest, or NaN");
    }

    detail::input_file file_;
    detail::gguf_header header_;
    std::map<std::string, std::size_t> by_name_;
};

namespace detail {

/// Whether a path is that of a GGUF file: by its name, or by its first bytes.
inline bool is_gguf(const std::filesystem::path& path) {
    std::error_code failed;
    if (!std::filesystem::is_regular_file(path, failed))
        return path.extension() == ".gguf" && !std::filesystem::is_directory(path, failed);
    if (path.extension() == ".gguf") return true;
    const input_file file(path);
    char magic[4]{};
    if (file.size() >= sizeof magic) file.read(magic, 0, sizeof magic);
    return std::memcmp(magic, "GGUF", sizeof magic) == 0;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
