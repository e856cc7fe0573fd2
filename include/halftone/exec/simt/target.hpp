// SPDX-License-Identifier: MIT
/// \file
/// GPUs by the names that nvcc gives their code, for plans that are made without one.
///
///     const auto hopper = simt::target_named("sm_90a");     // std::optional; empty for a name that is not known
///     hopper->gpu.multiprocessors;                          // 132
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <halftone/exec/simt/architecture.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace simt {

/// The usual GPU of an architecture, with code that was compiled for exactly this architecture.
struct target {
    std::string_view name;
    int version;             ///< 10 times the compute capability
    bool has_wgmma = false;  ///< the code has Hopper's matrix instructions

    constexpr architecture gpu() const { return architecture_of(version); }
    constexpr compiled_code code() const { return {has_228_kb(version), !has_228_kb(version)}; }
};
inline constexpr target targets[] = {{"sm_80", 80},   {"sm_86", 86},        {"sm_87", 87},   {"sm_89", 89},
                                     {"sm_90", 90},   {"sm_90a", 90, true}, {"sm_100", 100}, {"sm_103", 103},
                                     {"sm_120", 120}, {"sm_121", 121}};

constexpr std::optional<target> target_named(std::string_view name) {
    for (const target& t : targets) {
        if (t.name == name) return t;
    }
    return std::nullopt;
}
/// All names, for messages: "sm_80, sm_86, ...".
inline std::string target_names() {
    std::string all;
    for (const target& t : targets) all += (all.empty() ? "" : ", ") + std::string(t.name);
    return all;
}

}  // namespace simt
}  // namespace HALFTONE_ABI
}  // namespace halftone
