// SPDX-License-Identifier: MIT
/// \file
/// Writes a checkpoint: a folder of .safetensors files, one for each part with tensors, and their manifest.
///
/// The order, each step durable before the next: make checkpoint-N.part; write its files; write its manifest; flush the
/// folder; rename it to checkpoint-N; flush the folder above. A crash at any time leaves the earlier checkpoints, and this
/// one either complete or under another name. A failure (a full disk, an I/O error) removes what was written.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <halftone/io/checkpoint/folder.hpp>
#include <halftone/io/checkpoint/manifest.hpp>
#include <halftone/io/fields.hpp>
#include <halftone/io/safetensors_writer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What a checkpoint is called, and which others are kept.
struct checkpoint_options {
    std::int64_t step = 0;
    std::map<std::string, double> metrics{};  ///< of the model at this step: {{"eval_loss", 2.5}}
    std::string arguments{};                  ///< the program's arguments as JSON text, to be compared when it resumes
    int save_total_limit = 0;                 ///< the newest checkpoints that are kept; 0: all
    std::optional<std::int64_t> best = std::nullopt;  ///< the step of one that is kept in addition
};

namespace detail {

/// What is written of a part.
struct part_contents {
    std::string name;
    nlohmann::json state;
    std::vector<tensor_source> tensors;
    std::map<std::string, std::string> metadata{{"format", "pt"}};  ///< with the names of number types of a user's own
};

inline void write_files(const std::filesystem::path& folder, const checkpoint_options& o,
                        const std::vector<part_contents>& parts) {
    nlohmann::json manifest{{"step", o.step},
                            {"metrics", nlohmann::json::object()},
                            {"parts", nlohmann::json::object()},
                            {"files", nlohmann::json::object()}};
    for (const auto& [name, value] : o.metrics) manifest["metrics"][name] = to_json(value);
    if (!o.arguments.empty()) manifest["arguments"] = parse_json<argument_error>("checkpoint: arguments", o.arguments);
    for (const part_contents& part : parts) {
        manifest["parts"][part.name] = part.state;
        if (part.tensors.empty()) continue;
        const std::string name = part.name + ".safetensors";
        durable_file out(folder / name, file_naming::at_once);
        write_safetensors_to(out, part.tensors, part.metadata);
        out.commit();
        manifest["files"][name] = {{"bytes", out.size()}, {"crc32", hex(out.checksum())}};
    }
    write_manifest(folder, std::move(manifest));
    flush_folder(folder);
}

/// Gives a complete folder its name.
inline void publish(const std::filesystem::path& part, const std::filesystem::path& folder, std::int64_t step) {
    const auto path = checkpoint_path(folder, step), old = checkpoint_path(folder, step, ".old");
    if (std::filesystem::exists(path)) {
        remove_all_quietly(old);
        rename_path(path, old);
    }
    rename_path(part, path);
    flush_folder(folder);
    remove_all_quietly(old);
}

/// Removes checkpoints beyond the newest ones, but for the best.
inline void keep_newest(const std::filesystem::path& folder, const checkpoint_options& o) {
    if (o.save_total_limit <= 0) return;
    std::vector<checkpoint_place> all;
    try {
        all = list_checkpoints(folder);
    } catch (const io_error&) {
        return;  // the next save removes them
    }
    int kept = 0;
    for (const checkpoint_place& c : all) {
        // What was saved after this step belongs to a run that was resumed before it.
        if (c.step > o.step || (c.step != o.best && kept >= o.save_total_limit)) {
            remove_checkpoint(c.path);
        } else if (c.step != o.best || kept < o.save_total_limit) {
            ++kept;
        }
    }
}

/// Makes the folder that a checkpoint of this step is written in, empty; returns it. Throws io_error.
inline std::filesystem::path begin_part(const std::filesystem::path& folder, std::int64_t step) {
    try {
        std::filesystem::create_directories(folder);
        clean_folder(folder);
        const auto part = checkpoint_path(folder, step, ".part");
        std::filesystem::create_directory(part);
        return part;
    } catch (const std::filesystem::filesystem_error& e) {
        fail<io_error>("io: cannot write a checkpoint below ", folder.string(), ": ", e.code().message());
    }
}

/// Writes a checkpoint; returns its folder. Throws io_error.
inline std::filesystem::path write_checkpoint(const std::filesystem::path& folder, const checkpoint_options& o,
                                              const std::vector<part_contents>& parts) {
    if (o.step < 0) fail<argument_error>("checkpoint: step is ", o.step, "; expected 0 or more");
    try {
        const auto part = begin_part(folder, o.step);
        try {
            write_files(part, o, parts);
            publish(part, folder, o.step);
        } catch (...) {
            remove_all_quietly(part);
            throw;
        }
    } catch (const std::filesystem::filesystem_error& e) {
        fail<io_error>("io: cannot write a checkpoint below ", folder.string(), ": ", e.code().message());
    }
    keep_newest(folder, o);
    return checkpoint_path(folder, o.step);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
