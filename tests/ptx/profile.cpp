// SPDX-License-Identifier: MIT
/// \file
/// Counts the instructions of each kind that warps have executed, kernel by kernel, and prints them to stderr when the program
/// ends, if HALFTONE_PTX_PROFILE is set. These are PTX instructions, from which ptxas makes fewer machine instructions: the
/// counts show the effect of a change, but not how long a kernel takes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <cxxabi.h>

#include "ptx/runtime.hpp"

namespace halftone::ptx {

namespace {

std::string readable(const std::string& name) {
    int status = 0;
    char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
    if (text == nullptr) return name;
    std::string result = text;
    std::free(text);
    return result;
}

/// An instruction's name without types and modifiers, of which there are many: "ld.global", "mma.sync", "add".
std::string kind_of(const std::string& text) {
    std::string_view rest = text;
    if (rest.front() == '@') rest = rest.substr(rest.find_first_not_of(" \t", rest.find_first_of(" \t")));
    const std::string_view name = rest.substr(0, rest.find_first_of(" \t"));
    std::string kind(name.substr(0, name.find('.')));
    for (const std::string_view of : {".global", ".shared", ".local", ".param", ".async"})
        if (name.find(of) != name.npos) kind += of;
    return kind;
}

void print() {
    struct line {
        std::string kernel;
        std::uint64_t count = 0;
        std::map<std::string, std::uint64_t> kinds;
    };
    std::vector<line> lines;
    for (const auto& m : all().modules) {
        for (const auto& [name, f] : m->functions()) {
            line l{readable(name), 0, {}};
            for (std::size_t i = 0; i < f->code.size(); ++i) {
                l.count += f->executed[i];
                if (f->executed[i] != 0) l.kinds[kind_of(f->code[i].text)] += f->executed[i];
            }
            if (l.count != 0) lines.push_back(std::move(l));
        }
    }
    std::sort(lines.begin(), lines.end(), [](const line& a, const line& b) { return a.count > b.count; });
    for (const line& l : lines) {
        std::fprintf(stderr, "%12llu  %s\n", static_cast<unsigned long long>(l.count), l.kernel.c_str());
        std::vector<std::pair<std::uint64_t, std::string>> kinds;
        for (const auto& [kind, count] : l.kinds) kinds.emplace_back(count, kind);
        std::sort(kinds.rbegin(), kinds.rend());
        std::string text;
        for (const auto& [count, kind] : kinds) text += "  " + kind + " " + std::to_string(count);
        std::fprintf(stderr, "            %s\n", text.c_str());
    }
}

[[maybe_unused]] const bool is_wanted = std::getenv("HALFTONE_PTX_PROFILE") != nullptr && std::atexit(print) == 0;

}  // namespace

}  // namespace halftone::ptx
