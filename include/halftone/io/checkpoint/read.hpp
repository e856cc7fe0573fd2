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
#include <halftone/io/checkpoint/shards.hpp>
#include <halftone/io/checkpoint/verify.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Compares a part's tensors with those of its file, and converts them where that is requested. Returns the values of
/// each; those that were converted are in `converted`.
inline std::vector<const std::byte*> match_tensors(const std::string& where, const checkpoint_part& part, const loaded_file& file,
                                                   load_request& request, std::vector<std::vector<std::byte>>& converted) {
    tensor_faults faults;
    std::map<std::string, int> named;
    std::vector<const std::byte*> values;
    for (const part_tensor& t : part.tensors) {
        named[t.name] = 1;
        const auto found = file.by_name.find(t.name);
        if (found == file.by_name.end()) {
            faults.missing.add(t.name);
            continue;
        }
        const tensor_info& info = file.header.tensors[found->second];
        const stored_numbers there = numbers_in(file.header.metadata, t.name, info.type, info.shape),
                             here = t.numbers();
        if (!faults.fits(t.name, there, here, request.converts(), request.own_numbers)) continue;
        values.push_back(file.at(info));
        if (there == here) continue;
        converted.emplace_back(t.bytes);
        faults.convert(t.name, there, values.back(), here, converted.back().data(), t.bytes / here.bytes_of_number(),
                       request.own_numbers);
        values.back() = converted.back().data();
    }
    for (const tensor_info& t : file.header.tensors) {
        if (named.count(t.name) == 0) faults.unexpected.add(t.name);
    }
    faults.expect_none(where, part.name);
    return values;
}

/// The state that rank `rank` of `ranks` had or takes over. Throws checkpoint_error if each rank had its own, and there were
/// more or fewer of them.
inline const nlohmann::json& state_of(const std::filesystem::path& path, const nlohmann::json& manifest, const std::string& part,
                                      int rank, int ranks, load_request& request) {
    if (!manifest["parts"].contains(part)) {
        name_list there;
        for (const auto& [name, state] : manifest["parts"].items()) there.add(name);
        fail<checkpoint_error>(path.string(), " has no ", part, "; it has ", there.all());
    }
    const auto of_ranks = manifest.find("of_ranks");
    if (of_ranks == manifest.end() || !of_ranks->contains(part)) return manifest["parts"][part];
    const nlohmann::json& all = (*of_ranks)[part];
    if (all.size() == static_cast<std::size_t>(ranks)) return all[static_cast<std::size_t>(rank)];
    if (!request.converts()) {
        fail<checkpoint_error>(path.string(), ": each of its ", all.size(), " ranks has its own ", part, ", and here are ", ranks,
                               "; load it on as many, or with .policy = ht::policy_change::convert, which takes that of rank 0");
    }
    request.notes.push_back("the " + part + " is that of rank 0");
    return manifest["parts"][part];
}

/// Checks the states of all parts; returns what applies them.
inline std::vector<undoable> prepare_parts(const std::filesystem::path& path, const nlohmann::json& manifest,
                                           const std::vector<checkpoint_part>& parts, int rank, int ranks, load_request& request) {
    std::vector<undoable> changes;
    for (const checkpoint_part& part : parts)
        changes.push_back(part.prepare(state_of(path, manifest, part.name, rank, ranks, request), request));
    return changes;
}
/// Applies all changes or none. Throws checkpoint_error.
inline void apply_changes(const std::filesystem::path& path, const std::vector<undoable>& changes) {
    std::size_t done = 0;
    try {
        for (; done < changes.size(); ++done) changes[done].apply();
    } catch (const error& e) {
        while (done > 0) changes[--done].undo();
        fail<checkpoint_error>(path.string(), ": ", e.what());
    }
}

/// Loads a checkpoint into the parts: all of them or none; also one that several ranks have written. Throws io_error and
/// checkpoint_error.
inline checkpoint_info read_checkpoint(const std::filesystem::path& path, std::vector<checkpoint_part>& parts,
                                       load_request request) {
    const nlohmann::json manifest = read_manifest(path);
    checkpoint_info info = info_of(path, manifest);
    const std::vector<undoable> changes = prepare_parts(path, manifest, parts, 0, 1, request);
    const bool is_sharded = shard_files::ranks_of(path, manifest) > 1;
    std::vector<loaded_file> files;
    std::vector<std::vector<const std::byte*>> values(parts.size());
    std::vector<std::vector<std::byte>> converted;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::vector<std::string> names = shard_files::names_of(manifest, parts[i].name);
        if (names.empty()) {
            if (!parts[i].tensors.empty()) fail<checkpoint_error>(path.string(), " has no ", parts[i].name, ".safetensors");
            continue;
        }
        files.push_back(is_sharded ? join_shards(path, manifest, parts[i].name) : read_part_file(path / names[0], manifest));
        values[i] = match_tensors((is_sharded ? path / parts[i].name : path / names[0]).string(), parts[i], files.back(), request, converted);
    }
    apply_changes(path, changes);
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
