// SPDX-License-Identifier: MIT
/// \file
/// The tensors of one .safetensors file, or of several with an index, as Hugging Face distributes large models:
///
///     model.safetensors.index.json          {"metadata": {"total_size": 96}, "weight_map": {"NAME": "model-00001-of-00002.safetensors", ...}}
///
///     const ht::tensor_files weights("model");            // a file, an index, or a folder with either
///     weights.read(*weights.find("fc.bias"), to);
///
///     ht::write_tensor_files("model", tensors, {.max_shard_bytes = 5'000'000'000});
///
/// An index is refused if it names a file outside of its folder, a file that does not exist, or a tensor that its file
/// does not hold, and if a file holds a tensor that the index does not name.
///
/// Several files are written as one: the index, written last, is what makes them visible, and new files never have the
/// names of those that an earlier index names. So after a crash at any time the folder holds the old tensors or the new.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <halftone/io/safetensors.hpp>
#include <halftone/io/safetensors_writer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

inline constexpr const char* single_file_name = "model.safetensors";
inline constexpr const char* index_file_name = "model.safetensors.index.json";

/// The map from tensors to files of an index. `where` begins the messages.
inline std::map<std::string, std::string> parse_index(const std::string& where, std::string_view text) {
    const nlohmann::json j = parse_json<safetensors_error>(where, text);
    if (!j.is_object() || !j.contains("weight_map") || !j["weight_map"].is_object())
        fail<safetensors_error>(where, ": an index is an object with a weight_map");
    std::map<std::string, std::string> files;
    for (const auto& [name, file] : j["weight_map"].items()) {
        if (!file.is_string()) fail<safetensors_error>(where, ": '", shown(name), "' is not mapped to a file's name");
        const auto& named = file.template get_ref<const std::string&>();
        const bool is_plain = !named.empty() && named != "." && named != ".." &&
                              named.find_first_of(std::string_view("/\\:\0", 4)) == std::string::npos;
        if (!is_plain) fail<safetensors_error>(where, ": '", shown(named), "' is not the name of a file beside the index");
        files[name] = named;
    }
    return files;
}

/// A file of a folder that may hold the weights under another name: an index, or else a single file; empty if there is none. A link
/// to a file that is not there is none.
inline std::string other_weights(const std::filesystem::path& folder) {
    std::set<std::string> indexes, files;
    std::error_code failed;
    for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
        const std::string name = at->path().filename().string();
        if (std::error_code unknown; !std::filesystem::exists(at->path(), unknown)) continue;
        if (name.ends_with(".json") && name.find(".index.") != std::string::npos) indexes.insert(name);
        if (name.ends_with(".safetensors") && name.find("-of-") == std::string::npos) files.insert(name);
    }
    return !indexes.empty() ? *indexes.begin() : !files.empty() ? *files.begin() : std::string();
}
/// The file that a folder's weights are read from. Throws io_error if it has none.
inline std::filesystem::path weights_of_folder(const std::filesystem::path& folder) {
    for (const char* const name : {single_file_name, index_file_name}) {
        if (is_there(folder / name)) return folder / name;
    }
    const std::string other = other_weights(folder);
    const char* const known = "io: there is no model.safetensors and no model.safetensors.index.json in ";
    for (const char* const pickled : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
        if (is_there(folder / pickled))
            fail<io_error>(known, folder.string(), "; it has ", pickled,
                           ", which is not read: transformers' save_pretrained writes the other");
    }
    if (!other.empty()) fail<io_error>(known, folder.string(), "; it has ", shown(other), ": name that file");
    fail<io_error>(known, folder.string());
}

}  // namespace detail

/// The tensors of a model in one or several .safetensors files, opened for reading and checked.
class tensor_files {
  public:
    /// What loads throw for contents that are not what they should be.
    using error = safetensors_error;

    /// `path` is a .safetensors file, an index (*.json), or a folder that holds model.safetensors or
    /// model.safetensors.index.json; the single file is preferred, as by Hugging Face. Files of a variant of transformers,
    /// model.fp16.safetensors or model.safetensors.index.fp16.json, are named themselves. Throws io_error and
    /// safetensors_error.
    explicit tensor_files(const std::filesystem::path& path) {
        const std::filesystem::path file = detail::is_folder(path) ? detail::weights_of_folder(path) : path;
        if (file.extension() == ".json") {
            open_index(file);
        } else {
            files_.push_back(std::make_unique<safetensors_file>(file));
            for (const tensor_info& t : files_.back()->tensors()) add(t, *files_.back());
        }
    }

    /// All tensors, by name.
    const std::vector<tensor_info>& tensors() const { return tensors_; }
    /// The tensor with this name; nullptr if there is none.
    const tensor_info* find(const std::string& name) const {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : &tensors_[found->second.index];
    }
    /// Copies a tensor's bytes. Throws io_error.
    void read(const tensor_info& t, void* to) const { by_name_.at(t.name).file->read(t, to); }
    /// Copies so many of a tensor's bytes, from byte `first` on. Throws io_error.
    void read(const tensor_info& t, std::uint64_t first, std::size_t bytes, void* to) const {
        by_name_.at(t.name).file->read(t, first, bytes, to);
    }
    /// The number of files.
    std::size_t files() const { return files_.size(); }
    /// The metadata of the first file.
    const std::map<std::string, std::string>& metadata() const { return files_.front()->metadata(); }

  private:
    struct place {
        std::size_t index;
        const safetensors_file* file;
    };

    void add(const tensor_info& t, const safetensors_file& file) {
        by_name_[t.name] = {tensors_.size(), &file};
        tensors_.push_back(t);
    }
    void open_index(const std::filesystem::path& path) {
        const std::string where = path.string();
        const auto map = detail::parse_index(where, detail::read_small_file(path, most_header_bytes));
        if (map.empty()) fail<safetensors_error>(where, ": the index names no tensor");
        std::set<std::string> names;
        for (const auto& [name, file] : map) names.insert(file);
        for (const std::string& name : names) {
            const std::filesystem::path file = path.parent_path() / name;
            if (!detail::is_there(file)) fail<safetensors_error>(where, ": there is no ", detail::shown(name));
            files_.push_back(std::make_unique<safetensors_file>(file));
            for (const tensor_info& t : files_.back()->tensors()) {
                const auto found = map.find(t.name);
                if (found == map.end() || found->second != name) {
                    fail<safetensors_error>(where, ": ", detail::shown(name), " holds '", detail::shown(t.name),
                                            "', which the index does not map to it");
                }
                add(t, *files_.back());
            }
        }
        for (const auto& [name, file] : map) {
            if (by_name_.find(name) == by_name_.end())
                fail<safetensors_error>(where, ": ", detail::shown(file), " does not hold '", detail::shown(name), "'");
        }
    }

    std::vector<std::unique_ptr<safetensors_file>> files_;
    std::vector<tensor_info> tensors_;
    std::map<std::string, place> by_name_;
};

namespace detail {

/// "pt" is what transformers expects. A function, since g++ 12 fails on the initializer list in templates.
inline std::map<std::string, std::string> usual_metadata() { return {{"format", "pt"}}; }

}  // namespace detail

/// How tensors are divided into files.
struct tensor_file_options {
    std::uint64_t max_shard_bytes = 50'000'000'000;  ///< the most bytes of tensors in a file; a larger tensor has its own
    std::map<std::string, std::string> metadata = detail::usual_metadata();  ///< {{"format", "pt"}}
};

namespace detail {

inline std::vector<std::vector<tensor_source>> divide(const std::vector<tensor_source>& tensors, std::uint64_t most) {
    std::vector<std::vector<tensor_source>> shards(1);
    std::uint64_t filled = 0;
    for (const tensor_source& t : tensors) {
        const std::uint64_t bytes = bytes_of(t);
        if (!shards.back().empty() && filled + bytes > most) {
            shards.emplace_back();
            filled = 0;
        }
        shards.back().push_back(t);
        filled += bytes;
    }
    return shards;
}

/// "model-00001-of-00002.safetensors", or, where a file has such a name, "model-2-00001-of-00002.safetensors", ...
inline std::vector<std::string> shard_names(const std::filesystem::path& folder, std::size_t count) {
    for (int generation = 1;; ++generation) {
        std::vector<std::string> names;
        bool is_free = true;
        for (std::size_t i = 1; i <= count; ++i) {
            char text[64];
            std::snprintf(text, sizeof text, "-%05zu-of-%05zu.safetensors", i, count);
            names.push_back("model" + (generation == 1 ? std::string() : "-" + std::to_string(generation)) + text);
            is_free = is_free && !std::filesystem::exists(folder / names.back());
        }
        if (is_free) return names;
    }
}

/// The files that the folder's index names; none without an index, or with one that cannot be read.
inline std::set<std::string> indexed_files(const std::filesystem::path& folder) {
    std::set<std::string> files;
    try {
        const auto path = folder / index_file_name;
        if (!is_there(path)) return files;
        for (const auto& [name, file] : parse_index(path.string(), read_small_file(path, most_header_bytes))) files.insert(file);
    } catch (const io_error&) {
    }
    return files;
}

/// Whether this is the name of one of several files, as shard_names gives, or of such a file that was being written.
inline bool is_shard_name(std::string_view name) {
    if (name.ends_with(".part")) name.remove_suffix(5);
    if (!name.starts_with("model-") || !name.ends_with(".safetensors")) return false;
    name = name.substr(6, name.size() - 6 - 12);
    if (name.size() < 14 || name.substr(name.size() - 9, 4) != "-of-") return false;
    return name.find_first_not_of("0123456789-of") == std::string_view::npos;
}
inline void remove_quietly(const std::filesystem::path& path) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
}

/// Removes the files of earlier saves, complete or interrupted.
inline void remove_other_shards(const std::filesystem::path& folder) {
    const std::set<std::string> now = indexed_files(folder);
    std::vector<std::filesystem::path> others;
    std::error_code failed;
    for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
        const std::string name = at->path().filename().string();
        if (is_shard_name(name) && now.count(name) == 0) others.push_back(at->path());
    }
    for (const auto& path : others) remove_quietly(path);
}

}  // namespace detail

/// Writes tensors to model.safetensors in a folder, or, if they have more bytes than a file may, to several files and
/// their index; makes the folder if it does not exist. What was there before is replaced, and its files are removed, when
/// all is complete. Throws io_error and argument_error; what was there before then stays.
inline void write_tensor_files(const std::filesystem::path& folder, const std::vector<tensor_source>& tensors,
                               const tensor_file_options& options = {}) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) fail<io_error>("io: cannot make the folder ", folder.string(), ": ", failed.message());
    const auto shards = detail::divide(tensors, options.max_shard_bytes);
    if (shards.size() == 1) {
        // A reader prefers the single file, so that the old index is no longer read from this moment on.
        write_safetensors(folder / detail::single_file_name, shards[0], options.metadata);
        detail::remove_quietly(folder / detail::index_file_name);
    } else {
        const auto names = detail::shard_names(folder, shards.size());
        nlohmann::ordered_json map = nlohmann::ordered_json::object();
        std::uint64_t total = 0;
        try {
            for (std::size_t i = 0; i < shards.size(); ++i) {
                write_safetensors(folder / names[i], shards[i], options.metadata);
                for (const tensor_source& t : shards[i]) {
                    map[t.name] = names[i];
                    total += detail::bytes_of(t);
                }
            }
            const std::string text =
                nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", map}}.dump(2) + "\n";
            detail::durable_file index(folder / detail::index_file_name);
            index.write(text.data(), text.size());
            index.commit();
        } catch (...) {
            if (!std::filesystem::exists(folder / detail::index_file_name) ||
                detail::indexed_files(folder).count(names[0]) == 0) {
                for (const std::string& name : names) detail::remove_quietly(folder / name);
            }
            throw;
        }
        detail::remove_quietly(folder / detail::single_file_name);
    }
    detail::remove_other_shards(folder);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
