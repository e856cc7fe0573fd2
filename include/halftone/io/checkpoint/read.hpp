// SPDX-License-Identifier: MIT
/// \file
/// Reads a checkpoint: all of it is read, checked against its checksums and compared with the parts before any of them is
/// changed.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <halftone/io/checkpoint/manifest.hpp>
#include <halftone/io/checkpoint/part.hpp>

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
    std::size_t begin = 0;  ///< of the tensors

    std::map<std::string, std::size_t> by_name;
    const std::byte* at(const tensor_info& t) const { return bytes.get() + begin + t.first; }
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
    std::array<unsigned char, 8> prefix{};
    if (size < prefix.size()) fail<checkpoint_error>(path.string(), " is no .safetensors file");
    std::memcpy(prefix.data(), loaded.bytes.get(), prefix.size());
    const std::uint64_t length = little_endian(prefix);
    if (length > most_header_bytes || length > size - prefix.size())
        fail<checkpoint_error>(path.string(), " is no .safetensors file");
    loaded.begin = prefix.size() + static_cast<std::size_t>(length);
    const std::string_view text(reinterpret_cast<const char*>(loaded.bytes.get()) + prefix.size(), static_cast<std::size_t>(length));
    loaded.header = parse_safetensors(path.string(), text, size - loaded.begin);
    for (std::size_t i = 0; i < loaded.header.tensors.size(); ++i) loaded.by_name[loaded.header.tensors[i].name] = i;
    return loaded;
}

/// Compares a part's tensors with those of its file, and converts them where that is requested. Returns the values of
/// each; those that were converted are in `converted`.
inline std::vector<const std::byte*> match_tensors(const std::string& where, const checkpoint_part& part, const loaded_file& file,
                                                   load_request& request, std::vector<std::vector<std::byte>>& converted) {
    name_list missing, unexpected, differing;
    std::map<std::string, int> named;
    std::vector<const std::byte*> values;
    for (const part_tensor& t : part.tensors) {
        named[t.name] = 1;
        const auto found = file.by_name.find(t.name);
        if (found == file.by_name.end()) {
            missing.add(t.name);
            continue;
        }
        const tensor_info& there = file.header.tensors[found->second];
        const bool converts = there.type != t.type && request.converts() && is_float(there.type) && is_float(t.type);
        if (there.shape != t.shape || (there.type != t.type && !converts)) {
            differing.add(t.name + ", which is " + name(there.type) + ' ' + shape_text(there.shape) + " there, " +
                          name(t.type) + ' ' + shape_text(t.shape) + " here");
        } else if (converts) {
            converted.emplace_back(t.bytes);
            convert(there.type, file.at(there), t.type, converted.back().data(), there.count());
            values.push_back(converted.back().data());
        } else {
            values.push_back(file.at(there));
        }
    }
    for (const tensor_info& t : file.header.tensors) {
        if (named.count(t.name) == 0) unexpected.add(t.name);
    }
    std::string faults;
    const auto say = [&faults](const char* what, const name_list& list) {
        if (list.count != 0) faults += (faults.empty() ? "" : "; ") + std::string(what) + list.all();
    };
    say("missing: ", missing), say("unexpected: ", unexpected), say("of another shape or type: ", differing);
    if (!faults.empty()) fail<checkpoint_error>(where, " is of another ", part.name, ": ", faults);
    return values;
}

/// Loads a checkpoint into the parts: all of them or none. Throws io_error and checkpoint_error.
inline checkpoint_info read_checkpoint(const std::filesystem::path& path, std::vector<checkpoint_part>& parts,
                                       policy_change policy) {
    const nlohmann::json manifest = read_manifest(path);
    checkpoint_info info = info_of(path, manifest);
    load_request request{policy, {}};
    std::vector<undoable> changes;
    std::vector<loaded_file> files;
    std::vector<std::vector<const std::byte*>> values(parts.size());
    std::vector<std::vector<std::byte>> converted;
    for (const checkpoint_part& part : parts) {
        if (!manifest["parts"].contains(part.name)) {
            name_list there;
            for (const auto& [name, state] : manifest["parts"].items()) there.add(name);
            fail<checkpoint_error>(path.string(), " has no ", part.name, "; it has ", there.all());
        }
        changes.push_back(part.prepare(manifest["parts"][part.name], request));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::string name = parts[i].name + ".safetensors";
        if (!manifest["files"].contains(name)) {
            if (!parts[i].tensors.empty()) fail<checkpoint_error>(path.string(), " has no ", name);
            continue;
        }
        files.push_back(read_part_file(path / name, manifest["files"][name]));
        values[i] = match_tensors((path / name).string(), parts[i], files.back(), request, converted);
    }
    std::size_t done = 0;
    try {
        for (; done < changes.size(); ++done) changes[done].apply();
    } catch (const error& e) {
        while (done > 0) changes[--done].undo();
        fail<checkpoint_error>(path.string(), ": ", e.what());
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].latch != nullptr) parts[i].latch->wait();
        for (std::size_t k = 0; k < values[i].size(); ++k) parts[i].tensors[k].write(values[i][k]);
        parts[i].finish();
    }
    info.notes = std::move(request.notes);
    return info;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
