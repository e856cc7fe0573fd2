// SPDX-License-Identifier: MIT
/// \file
/// What a checkpoint says of itself, and whether its files are those that were written; without loading it.
///
///     ht::verify_checkpoint("run/checkpoint-300").metrics.at("eval_loss")
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <halftone/io/checkpoint/manifest.hpp>
#include <halftone/io/fields.hpp>
#include <halftone/io/safetensors.hpp>
#include <halftone/io/worker_threads.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What a checkpoint says of itself.
struct checkpoint_info {
    std::filesystem::path path;
    std::int64_t step = 0;
    std::map<std::string, double> metrics;
    std::string arguments;           ///< as JSON text, if the program saved some
    std::vector<std::string> notes;  ///< what was converted, if it was loaded under another policy
};

namespace detail {

inline checkpoint_info info_of(const std::filesystem::path& path, const nlohmann::json& manifest) {
    checkpoint_info info{path, manifest["step"].get<std::int64_t>(), {}, {}, {}};
    for (const auto& [name, value] : manifest["metrics"].items())
        from_json(value, info.metrics[name], path.string() + ": a metric");
    if (manifest.contains("arguments")) info.arguments = manifest["arguments"].dump();
    return info;
}

/// A .safetensors file of a checkpoint, in memory.
struct loaded_file {
    std::unique_ptr<std::byte[]> bytes;
    safetensors_header header;
    std::map<std::string, std::size_t> by_name;
    const std::byte* at(const tensor_info& t) const { return bytes.get() + t.first; }
};

/// Reads a file whole; returns its checksum. Large ones are read by several threads.
inline std::uint32_t read_and_sum(const input_file& in, std::byte* to) {
    const auto size = static_cast<std::size_t>(in.size());
    constexpr std::size_t piece = std::size_t{1} << 20;  // is still in the cache when its checksum is computed
    const std::size_t threads = reading_threads(size, 4), each = ceil_div(size, threads);
    std::vector<std::uint32_t> sums(threads);
    on_worker_threads(threads, threads, [&](std::size_t, std::size_t t) {
        crc32 sum;
        const std::size_t end = std::min(size, (t + 1) * each);
        for (std::size_t done = t * each; done < end; done += piece) {
            const std::size_t count = std::min(end - done, piece);
            in.read(to + done, done, count);
            sum.add(to + done, count);
        }
        sums[t] = sum.value();
    });
    std::uint32_t sum = 0;
    for (std::size_t t = 0; t < threads; ++t) {
        sum = t == 0 ? sums[0] : crc32_joined(sum, sums[t], std::min(size, (t + 1) * each) - t * each);
    }
    return sum;
}

/// The checksum of a file, of which a piece is in memory at a time.
inline std::uint32_t sum_of_file(const input_file& in) {
    constexpr std::size_t most = std::size_t{1} << 20;
    const auto size = static_cast<std::size_t>(in.size());
    std::vector<std::byte> piece(std::min(size, most));
    crc32 sum;
    for (std::size_t done = 0, count; done < size; done += count) {
        count = std::min(size - done, most);
        in.read(piece.data(), done, count);
        sum.add(piece.data(), count);
    }
    return sum.value();
}

/// " (it is of step 200)", if a file says so and that is not the manifest's.
inline std::string other_step(const std::filesystem::path& path, const nlohmann::json& manifest) {
    try {
        const safetensors_file file(path);
        const auto said = file.metadata().find("step");
        if (said != file.metadata().end() && said->second != manifest["step"].dump()) return " (it is of step " + shown(said->second) + ")";
    } catch (const io_error&) {
    }
    return "";
}

/// Checks the size and checksum of a file of a checkpoint; copies it to `to`, if that is given. Throws io_error and
/// checkpoint_error.
inline void check_file(const std::filesystem::path& path, const nlohmann::json& manifest, std::byte* to = nullptr) {
    const nlohmann::json& file = manifest["files"][path.filename().string()];
    const input_file in(path);
    const auto size = file["bytes"].get<std::uint64_t>();
    if (in.size() != size) fail<checkpoint_error>(path.string(), " has ", in.size(), " bytes; expected ", size, other_step(path, manifest));
    const std::uint32_t sum = to == nullptr ? sum_of_file(in) : read_and_sum(in, to);
    if (file["crc32"] != hex(sum)) fail<checkpoint_error>(path.string(), " is damaged: its checksum differs", other_step(path, manifest));
}

/// Reads a file and checks its size, its checksum and its format.
inline loaded_file read_part_file(const std::filesystem::path& path, const nlohmann::json& manifest) {
    loaded_file loaded;
    const auto expected = manifest["files"][path.filename().string()]["bytes"].get<std::uint64_t>();
    const std::uint64_t there = input_file(path).size();  // before memory is allocated for what the manifest says
    if (there != expected) fail<checkpoint_error>(path.string(), " has ", there, " bytes; expected ", expected);
    const auto size = static_cast<std::size_t>(expected);
    loaded.bytes.reset(new std::byte[size]);  // not cleared, as make_unique would
    check_file(path, manifest, loaded.bytes.get());
    loaded.header = read_safetensors(path.string(), size, [&](void* to, std::uint64_t first, std::size_t count) {
        std::memcpy(to, loaded.bytes.get() + first, count);
    });
    for (std::size_t i = 0; i < loaded.header.tensors.size(); ++i) loaded.by_name[loaded.header.tensors[i].name] = i;
    return loaded;
}

}  // namespace detail

/// What a checkpoint says of itself, without loading it. Throws io_error and checkpoint_error.
inline checkpoint_info read_checkpoint_info(const std::filesystem::path& checkpoint) {
    return detail::info_of(checkpoint, detail::read_manifest(checkpoint));
}

/// Checks a checkpoint's manifest, and sizes and checksums of its files. Throws io_error and checkpoint_error.
inline checkpoint_info verify_checkpoint(const std::filesystem::path& checkpoint) {
    const nlohmann::json manifest = detail::read_manifest(checkpoint);
    for (const auto& [name, file] : manifest["files"].items()) {
        detail::check_file(checkpoint / name, manifest);
        const safetensors_file header(checkpoint / name);  // throws if it is none
    }
    return detail::info_of(checkpoint, manifest);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
