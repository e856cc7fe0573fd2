// SPDX-License-Identifier: MIT
/// \file
/// The folder of a run's checkpoints: checkpoint-300, checkpoint-600, ..., as Hugging Face's trainer names them.
///
///     for (const ht::checkpoint_place& c : ht::list_checkpoints("run")) std::cout << c.step << '\n';       // newest first
///
/// Names that a crash may leave behind: checkpoint-N.part, which was being written; checkpoint-N.gone, which was being
/// removed; and checkpoint-N.old, which was being replaced by another of the same step, and counts as checkpoint-N if
/// there is none. The next save removes them.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <halftone/io/file.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A checkpoint's folder and step.
struct checkpoint_place {
    std::filesystem::path path;
    std::int64_t step = 0;
};

namespace detail {

/// The step in "checkpoint-300" with this ending; -1 for any other name.
inline std::int64_t step_in(std::string_view name, std::string_view ending) {
    constexpr std::string_view begin = "checkpoint-";
    if (name.size() <= begin.size() + ending.size() || name.substr(0, begin.size()) != begin) return -1;
    if (name.substr(name.size() - ending.size()) != ending) return -1;
    const std::string_view digits = name.substr(begin.size(), name.size() - begin.size() - ending.size());
    std::int64_t step = -1;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    const bool is_number = failed == std::errc{} && end == digits.data() + digits.size() && digits[0] != '-';
    return is_number && (digits[0] != '0' || digits.size() == 1) ? step : -1;
}
inline std::filesystem::path checkpoint_path(const std::filesystem::path& folder, std::int64_t step, const char* ending = "") {
    return folder / ("checkpoint-" + std::to_string(step) + ending);
}

inline void remove_all_quietly(const std::filesystem::path& path) {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
}
/// Removes a checkpoint so that a crash leaves no incomplete one with its name.
inline void remove_checkpoint(const std::filesystem::path& path) {
    std::filesystem::path gone = path;
    gone += ".gone";
    std::error_code failed;
    remove_all_quietly(gone);
    std::filesystem::rename(path, gone, failed);
    if (!failed) remove_all_quietly(gone);
}
/// Removes what crashes left behind.
inline void clean_folder(const std::filesystem::path& folder) {
    std::error_code failed;
    std::vector<std::filesystem::path> left;
    for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
        const std::string name = at->path().filename().string();
        const std::int64_t old = step_in(name, ".old");
        if (step_in(name, ".part") >= 0 || step_in(name, ".gone") >= 0 ||
            (old >= 0 && std::filesystem::exists(checkpoint_path(folder, old))))
            left.push_back(at->path());
    }
    for (const auto& path : left) remove_all_quietly(path);
}

}  // namespace detail

/// The checkpoints in a folder, newest first, good or not; none if there is no such folder. Throws io_error if it cannot
/// be read.
inline std::vector<checkpoint_place> list_checkpoints(const std::filesystem::path& folder) {
    std::vector<checkpoint_place> found;
    std::error_code failed;
    if (!std::filesystem::is_directory(folder, failed)) return found;
    for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
        const std::string name = at->path().filename().string();
        const std::int64_t step = detail::step_in(name, ""), old = detail::step_in(name, ".old");
        std::error_code ignored;
        if (step >= 0) found.push_back({at->path(), step});
        if (old >= 0 && !std::filesystem::exists(detail::checkpoint_path(folder, old), ignored)) found.push_back({at->path(), old});
    }
    if (failed) fail<io_error>("io: cannot read ", folder.string(), ": ", failed.message());
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step > b.step; });
    return found;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
