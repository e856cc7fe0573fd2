// SPDX-License-Identifier: MIT
/// \file
/// What tests of folders of transformers' models share: the text of a file, what a call throws, a model's values, and folders
/// with changes.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <halftone/error.hpp>
#include <halftone/io/pretrained/folder.hpp>
#include <halftone/io/tensor_files.hpp>
#include <halftone/io/weights.hpp>

#include "support/temporary_folder.hpp"

namespace pretrained_checks {

namespace ht = halftone;

inline std::string text_of(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}
/// What an Error that f throws says; "no error" if it throws nothing.
template <class Error = halftone::error, class F>
std::string message_of(const F& f) {
    try {
        f();
    } catch (const Error& e) {
        return e.what();
    }
    return "no error";
}

/// The masters of all parameters, which are float.
inline std::vector<float> values_of(const ht::store& parameters) {
    std::vector<float> all;
    for (const ht::store::entry& e : parameters.entries()) {
        std::vector<float> values(e.count);
        ht::detail::read_values(parameters, e, 0, e.count, reinterpret_cast<std::byte*>(values.data()));
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}
/// Whether a folder that halftone saved has the tensors of another: names, shapes and values.
inline void has_tensors_of(const std::filesystem::path& saved, const std::filesystem::path& first) {
    const ht::tensor_files ours(saved), theirs(first);
    REQUIRE(ours.tensors().size() == theirs.tensors().size());
    for (const ht::tensor_info& t : theirs.tensors()) {
        CAPTURE(t.name);
        const ht::tensor_info* const o = ours.find(t.name);
        REQUIRE(o != nullptr);
        CHECK(o->shape == t.shape);
        CHECK(ht::detail::have_equal_values(ours, *o, theirs, t));
    }
}
/// The folder that an environment variable names, which keeps what a test saves; otherwise the temporary one.
inline std::filesystem::path kept_or(const char* variable, const support::temporary_folder& temporary) {
    const char* const kept = std::getenv(variable);
    return kept != nullptr ? std::filesystem::path(kept) : temporary.path();
}
/// A copy of a golden folder whose config.json has another value of a key; null: it lacks the key.
struct changed_folder {
    support::temporary_folder folder;
    nlohmann::json config;

    explicit changed_folder(const std::filesystem::path& golden) {
        std::filesystem::copy(golden, folder.path());
        config = nlohmann::json::parse(text_of(folder.path() / "config.json"));
    }
    void set(const char* key, const nlohmann::json& value) {
        nlohmann::json changed = config;
        if (value.is_null()) {
            changed.erase(key);
        } else {
            changed[key] = value;
        }
        std::ofstream(folder.path() / "config.json") << changed;
    }
    /// What `read` throws then, behind the file's name.
    template <class Read>
    std::string said(const char* key, const nlohmann::json& value, const Read& read) {
        set(key, value);
        const std::string message = message_of(read);
        const auto at = message.find("config.json: ");
        return at == std::string::npos ? message : message.substr(at + 13);
    }
};

/// Tensors of a folder under new names, none, one or several each, and those that `add` appends.
template <class Name, class Add = void (*)(std::vector<ht::tensor_source>&)>
void copy_renamed(
    const std::filesystem::path& from, const std::filesystem::path& to, const Name& name,
    const Add& add = [](std::vector<ht::tensor_source>&) {}) {
    const ht::tensor_files files(from);
    std::vector<ht::tensor_source> sources;
    for (const ht::tensor_info& t : files.tensors()) {
        for (const std::string& named : name(t.name)) {
            sources.push_back(
                {named, t.type, t.shape, [&files, &t](std::byte* at, std::size_t first, std::size_t bytes) {
                     const auto all = ht::detail::bytes_of_tensor(files, t);
                     std::copy_n(all.data() + first, bytes, at);
                 }});
        }
    }
    add(sources);
    ht::write_safetensors(to, sources, {});
}

}  // namespace pretrained_checks
