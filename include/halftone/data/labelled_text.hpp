// SPDX-License-Identifier: MIT
/// \file
/// Labelled texts: a folder with one folder for each class and one file for each text, as aclImdb/train.
///
///     const ht::labelled_text texts{"aclImdb/train"};                      // neg/*.txt is class 0, pos/*.txt is class 1
///     texts.class_name(texts[0].label), texts[0].text                      // "neg", its bytes
///
/// The order is fixed: classes by name (or as the options name them), the texts of a class by file name. All files are
/// read when the object is made, and errors are reported in one sentence before anything is used.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <halftone/data/data_error.hpp>
#include <halftone/data/text.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Which folders and files are read.
struct labelled_text_options {
    /// The folders of the classes; their order is that of the labels. Empty: all folders, by name, without "unsup",
    /// which holds the unlabelled texts in the IMDb layout, and without those that begin with a dot.
    std::vector<std::string> classes = {};
    /// The endings of the files that are read; empty: all files.
    std::vector<std::string> extensions = {".txt"};
    /// More bytes than this throw an error, before memory runs out.
    std::uint64_t limit = std::uint64_t{1} << 36;
};

/// A text, which is a part of the memory of the labelled_text that it comes from, and its class.
struct labelled_text_row {
    std::string_view text{};
    std::int32_t label = 0;  ///< 0 to classes() - 1
};

/// The texts of a folder, in memory, and their classes.
class labelled_text {
  public:
    /// Throws data_error if the folder or one of a class cannot be read or holds no texts, for fewer than two classes,
    /// and for an empty text; argument_error if the options name a class twice.
    explicit labelled_text(const std::filesystem::path& folder, const labelled_text_options& options = {}) {
        names_ = options.classes.empty() ? folders_in(folder) : options.classes;
        for (std::size_t i = 0; i < names_.size(); ++i) {
            if (std::count(names_.begin(), names_.end(), names_[i]) > 1)
                fail<argument_error>("labelled_text: the class ", names_[i], " is named twice");
        }
        if (names_.empty()) fail<data_error>("labelled_text: ", folder.string(), " holds no folders of classes");
        if (names_.size() == 1) {
            fail<data_error>("labelled_text: ", folder.string(), " has one class, ", names_[0],
                             "; expected folders of 2 or more");
        }
        for (std::size_t label = 0; label < names_.size(); ++label) {
            for (const auto& file : files_in(folder / names_[label], options))
                append(file, static_cast<std::int32_t>(label), options);
        }
    }

    /// The number of texts.
    extent size() const { return static_cast<extent>(labels_.size()); }
    labelled_text_row operator[](extent index) const {
        const auto i = static_cast<std::size_t>(index);
        const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
        return {std::string_view(bytes_).substr(begin, ends_[i] - begin), labels_[i]};
    }
    /// The file that a text comes from.
    const std::filesystem::path& file(extent index) const { return files_[static_cast<std::size_t>(index)]; }

    extent classes() const { return static_cast<extent>(names_.size()); }
    /// The name of a class: that of its folder.
    const std::string& class_name(extent label) const { return names_[static_cast<std::size_t>(label)]; }
    const std::vector<std::string>& class_names() const { return names_; }

  private:
    static std::vector<std::string> folders_in(const std::filesystem::path& folder) {
        std::vector<std::string> names;
        each_entry(folder, [&names](const std::filesystem::directory_entry& entry) {
            std::error_code ignored;
            const std::string name = entry.path().filename().string();
            if (name.front() != '.' && name != "unsup" && entry.is_directory(ignored)) names.push_back(name);
        });
        std::sort(names.begin(), names.end());
        return names;
    }

    static std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder,
                                                       const labelled_text_options& options) {
        std::vector<std::filesystem::path> files;
        each_entry(folder, [&](const std::filesystem::directory_entry& entry) {
            if (entry.path().filename().string().front() == '.') return;
            std::error_code ignored;
            // Also a link whose target is missing: reading it is an error, and skipping it would be a silent loss.
            if (!entry.is_directory(ignored) && detail::has_extension(entry.path(), options.extensions))
                files.push_back(entry.path());
        });
        if (files.empty()) {
            std::string wanted;
            for (const std::string& extension : options.extensions)
                wanted += (wanted.empty() ? " that end in " : ", ") + extension;
            fail<data_error>("labelled_text: the folder ", folder.string(), " holds no files", wanted);
        }
        std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
            return a.generic_string() < b.generic_string();
        });
        return files;
    }

    template <class Function>
    static void each_entry(const std::filesystem::path& folder, const Function& f) {
        namespace fs = std::filesystem;
        std::error_code failed;
        const fs::file_status status = fs::status(folder, failed);
        if (status.type() == fs::file_type::not_found)
            fail<data_error>("labelled_text: there is no ", folder.string());
        if (failed) fail<data_error>("labelled_text: cannot look at ", folder.string(), ": ", failed.message());
        if (!fs::is_directory(status)) fail<data_error>("labelled_text: ", folder.string(), " is not a folder");
        fs::directory_iterator each(folder, failed), end;
        for (; !failed && each != end; each.increment(failed)) f(*each);
        if (failed) fail<data_error>("labelled_text: cannot list ", folder.string(), ": ", failed.message());
    }

    void append(const std::filesystem::path& file, std::int32_t label, const labelled_text_options& options) {
        const std::size_t before = bytes_.size();
        bytes_ += detail::read_file("labelled_text", file, options.limit);
        if (bytes_.size() > options.limit)
            fail<data_error>("labelled_text: more than ", options.limit, " bytes up to ", file.string());
        if (bytes_.size() == before) fail<data_error>("labelled_text: ", file.string(), " is empty");
        files_.push_back(file);
        labels_.push_back(label);
        ends_.push_back(bytes_.size());
    }

    std::vector<std::string> names_;
    std::string bytes_;  ///< all texts, one after the other
    std::vector<std::size_t> ends_;
    std::vector<std::int32_t> labels_;
    std::vector<std::filesystem::path> files_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
