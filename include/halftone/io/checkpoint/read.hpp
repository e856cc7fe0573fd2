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

#include <halftone/io/checkpoint/part.hpp>
#include <halftone/io/checkpoint/verify.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

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
