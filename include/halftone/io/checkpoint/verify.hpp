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

/// Reads a file and checks its size, its checksum and its format.
inline loaded_file read_part_file(const std::filesystem::path& path, const nlohmann::json& file) {
    const input_file in(path);
    const auto expected = file["bytes"].get<std::uint64_t>();
    if (in.size() != expected)
        fail<checkpoint_error>(path.string(), " has ", in.size(), " bytes; expected ", expected);
    loaded_file loaded;
    const auto size = static_cast<std::size_t>(in.size());
    loaded.bytes.reset(new std::byte[size]);  // not cleared, as make_unique would
    crc32 sum;
    for (std::size_t done = 0; done < size;) {  // a piece is in the cache when its checksum is computed
        const std::size_t count = std::min(size - done, std::size_t{1} << 20);
        in.read(loaded.bytes.get() + done, done, count);
        sum.add(loaded.bytes.get() + done, count);
        done += count;
    }
    if (file["crc32"] != hex(sum.value())) fail<checkpoint_error>(path.string(), " is damaged: its checksum differs");
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
    for (const auto& [name, file] : manifest["files"].items()) detail::read_part_file(checkpoint / name, file);
    return detail::info_of(checkpoint, manifest);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
