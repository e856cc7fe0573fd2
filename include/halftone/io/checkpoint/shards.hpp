// SPDX-License-Identifier: MIT
/// \file
/// The files of a checkpoint that several ranks have written: each holds ranges of tensors.
///
///     model-00001-of-00004.safetensors     "norm.weight" (64), "h.0.up.weight[0:700 of 64,32]" (700), ...
///     model-00002-of-00004.safetensors     "h.0.up.weight[700:1400 of 64,32]" (700), ...
///     checkpoint.json                      {"ranks": 4, "files": {"model-00001-of-00004.safetensors": ...}, ...}
///
/// A whole tensor has its name and its shape; a range is a vector, whose name tells its first element, the one behind its
/// last, in row-major order, and the shape of the whole. The ranges of all files make each tensor once, which is checked.
/// A checkpoint of one rank has plain names and whole tensors, and is read by the same code.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <halftone/io/checkpoint/numbers.hpp>
#include <halftone/io/checkpoint/verify.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The most ranks that a checkpoint may have been written by.
inline constexpr int most_shards = 99'999;

/// "model.safetensors", or of several ranks "model-00002-of-00004.safetensors".
inline std::string shard_file_name(const std::string& part, int rank, int ranks) {
    if (ranks == 1) return part + ".safetensors";
    char text[40];
    std::snprintf(text, sizeof text, "-%05d-of-%05d.safetensors", rank + 1, ranks);
    return part + text;
}

/// The name of a tensor's elements [first, last).
inline std::string range_name(const std::string& name, const std::vector<extent>& shape, std::size_t first, std::size_t last) {
    std::string text = name + '[' + std::to_string(first) + ':' + std::to_string(last) + " of ";
    for (std::size_t i = 0; i < shape.size(); ++i) text += sentence(i == 0 ? "" : ",", shape[i]);
    return text + ']';
}

/// What a tensor of a file is of a whole one.
struct range_description {
    std::string name;
    std::vector<extent> shape;  ///< of the whole tensor
    std::size_t first = 0, count = 0;
};

/// The elements of a shape; false if there are too many.
inline bool count_of(const std::vector<extent>& shape, std::size_t each, std::size_t& count) {
    std::uint64_t bytes = 0;
    if (!checked_bytes(shape, each, bytes)) return false;
    count = static_cast<std::size_t>(bytes / each);
    return true;
}

/// Reads the name that range_name gives; a name of another form is that of a whole tensor, as are all in a file that is not
/// one of several. Throws checkpoint_error.
inline range_description describe_range(const std::string& where, const tensor_info& t, bool is_sharded) {
    if (!has_cpp_type(t.type))
        fail<checkpoint_error>(where, ": ", shown(t.name), " is ", name(t.type), ", which no checkpoint has");
    const std::size_t open = t.name.rfind('[');
    if (!is_sharded || open == std::string::npos || t.name.back() != ']') return {t.name, t.shape, 0, t.count()};
    range_description d{t.name.substr(0, open), {}, 0, 0};
    const char* at = t.name.data() + open + 1;
    const char* const end = t.name.data() + t.name.size() - 1;
    const auto number = [&](std::uint64_t& n) {
        const auto [next, failed] = std::from_chars(at, end, n);
        const bool is_good = failed == std::errc{} && n <= INT64_MAX;
        at = next;
        return is_good;
    };
    const auto is_next = [&](std::string_view text) {
        if (static_cast<std::size_t>(end - at) < text.size() || std::string_view(at, text.size()) != text) return false;
        at += text.size();
        return true;
    };
    std::uint64_t first = 0, last = 0, extent_of = 0;
    bool is_good = number(first) && is_next(":") && number(last) && is_next(" of ");
    for (bool more = is_good && at != end; more; more = is_next(",")) {
        is_good = number(extent_of);
        if (!is_good) break;
        d.shape.push_back(static_cast<extent>(extent_of));
    }
    std::size_t all = 0;
    is_good = is_good && at == end && count_of(d.shape, size_of(t.type), all) && first <= last && last <= all &&
              last - first == t.count() && t.shape.size() == 1;
    if (!is_good) fail<checkpoint_error>(where, ": ", shown(t.name), " is no range of a tensor");
    d.first = static_cast<std::size_t>(first), d.count = static_cast<std::size_t>(last - first);
    return d;
}

/// The files of a part, opened, and their tensors.
class shard_files {
  public:
    /// A tensor, and where its elements lie.
    struct tensor {
        dtype type = dtype::f32;
        std::vector<extent> shape;
        std::string own{};  ///< the name of a number type of a user's own
        struct piece {
            std::size_t first, count;  // elements
            const input_file* file;
            std::uint64_t at;          // byte in the file
        };
        std::vector<piece> pieces;     // by their places
    };

    /// Reads the headers of a part's files. Checksums are not looked at. Throws io_error if a file is missing, and
    /// checkpoint_error if one has another size, or if the ranges do not make each tensor once.
    shard_files(const std::filesystem::path& folder, const nlohmann::json& manifest, const std::string& part) : where_(folder.string()) {
        const bool is_sharded = ranks_of(folder, manifest) > 1;
        for (const std::string& name : names_of(manifest, part)) {
            files_.push_back(std::make_unique<input_file>(folder / name));
            const input_file& file = *files_.back();
            const auto expected = manifest["files"][name]["bytes"].get<std::uint64_t>();
            if (file.size() != expected)
                fail<checkpoint_error>(file.path().string(), " has ", file.size(), " bytes; expected ", expected);
            const auto header = read_safetensors(file.path().string(), file.size(), [&file](void* to, std::uint64_t first, std::size_t count) {
                file.read(to, first, count);
            });
            for (const tensor_info& t : header.tensors) add(t, file, is_sharded, header.metadata);
        }
        for (auto& [name, t] : tensors_) check(name, t);
    }

    /// The ranks that wrote a checkpoint. Throws checkpoint_error.
    static int ranks_of(const std::filesystem::path& folder, const nlohmann::json& manifest) {
        if (!manifest.contains("ranks")) return 1;
        const nlohmann::json& ranks = manifest["ranks"];
        if (!ranks.is_number_unsigned() || ranks.get<std::uint64_t>() < 1 || ranks.get<std::uint64_t>() > most_shards)
            fail<checkpoint_error>((folder / manifest_name).string(), ": ranks is ", shown(ranks.dump()), "; expected 1 to ", most_shards);
        return static_cast<int>(ranks.get<std::uint64_t>());
    }
    /// The names of a part's files.
    static std::vector<std::string> names_of(const nlohmann::json& manifest, const std::string& part) {
        std::vector<std::string> names;
        const int ranks = ranks_of({}, manifest);
        for (int rank = 0; rank < ranks; ++rank) {
            const std::string name = shard_file_name(part, rank, ranks);
            if (manifest["files"].contains(name)) names.push_back(name);
        }
        return names;
    }

    bool is_empty() const { return files_.empty(); }
    const std::map<std::string, tensor>& tensors() const { return tensors_; }
    /// The tensor with this name; nullptr if there is none.
    const tensor* find(const std::string& name) const {
        const auto found = tensors_.find(name);
        return found == tensors_.end() ? nullptr : &found->second;
    }
    /// Copies elements of a tensor. Throws io_error.
    static void read(const tensor& t, std::size_t first, std::size_t count, std::byte* to) {
        const std::size_t each = size_of(t.type), last = first + count;
        for (const tensor::piece& p : t.pieces) {
            const std::size_t begin = std::max(first, p.first), end = std::min(last, p.first + p.count);
            if (begin < end) p.file->read(to + (begin - first) * each, p.at + (begin - p.first) * each, (end - begin) * each);
        }
    }

  private:
    void add(const tensor_info& info, const input_file& file, bool is_sharded,
             const std::map<std::string, std::string>& metadata) {
        const range_description d = describe_range(file.path().string(), info, is_sharded);
        const auto [at, is_new] = tensors_.try_emplace(d.name);
        tensor& t = at->second;
        const stored_numbers stored = numbers_in(metadata, d.name, info.type, d.shape);
        if (is_new) t.type = info.type, t.shape = d.shape, t.own = stored.own;
        if (t.type != info.type || t.shape != d.shape || t.own != stored.own)
            fail<checkpoint_error>(file.path().string(), ": ", shown(info.name), " is ", name(info.type), ' ', shape_text(d.shape), "; in another file it is ",
                                   name(t.type), ' ', shape_text(t.shape));
        t.pieces.push_back({d.first, d.count, &file, info.first});
    }
    void check(const std::string& name, tensor& t) const {
        std::sort(t.pieces.begin(), t.pieces.end(), [](const auto& a, const auto& b) { return a.first != b.first ? a.first < b.first : a.count < b.count; });
        std::size_t end = 0, all = 0;
        static_cast<void>(count_of(t.shape, size_of(t.type), all));  // checked where it was read
        for (const auto& p : t.pieces) {
            if (p.first < end) fail<checkpoint_error>(where_, ": elements ", p.first, " to ", std::min(end, p.first + p.count), " of ", shown(name), " are in two files");
            if (p.first > end) break;
            end += p.count;
        }
        if (end != all) fail<checkpoint_error>(where_, ": elements of ", shown(name), " from ", end, " on are in no file");
    }

    std::string where_;
    std::vector<std::unique_ptr<input_file>> files_;
    std::map<std::string, tensor> tensors_;
};

/// The whole tensors of a part that several ranks wrote, in memory, as one file has them; checksums are compared.
inline loaded_file join_shards(const std::filesystem::path& folder, const nlohmann::json& manifest, const std::string& part) {
    for (const std::string& name : shard_files::names_of(manifest, part)) check_file(folder / name, manifest);
    const shard_files files(folder, manifest, part);
    loaded_file joined;
    std::uint64_t end = 0;
    for (const auto& [name, t] : files.tensors()) {
        std::uint64_t bytes = 0;
        static_cast<void>(checked_bytes(t.shape, size_of(t.type), bytes));
        joined.by_name[name] = joined.header.tensors.size();
        joined.header.tensors.push_back({name, t.type, t.shape, end, bytes});
        if (!t.own.empty()) joined.header.metadata[number_key(name)] = t.own;
        end += round_up(bytes, 8u);
    }
    joined.bytes.reset(new std::byte[static_cast<std::size_t>(end)]);
    for (const tensor_info& info : joined.header.tensors)
        shard_files::read(*files.find(info.name), 0, info.count(), joined.bytes.get() + info.first);
    return joined;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
