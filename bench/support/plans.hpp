// SPDX-License-Identifier: MIT
/// \file
/// The options --plan, --device and --types of programs that print plans, which need no GPU and time nothing.
///
///     bench::gpu_options gpu;
///     CLI::Option* const plan = app.add_option("--plan", gpu.shape, "...")->check(...);
///     gpu.add(app, plan, named_types);                   // --device sm_90a --types bf16,tf32
///     app.final_callback([&] {
///         if (gpu.shape.empty()) return;
///         bench::refuse_beside_plan(app, {"--plan", "--device", "--types"});
///         ...
///         throw CLI::Success();
///     });
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include <halftone/exec/simt/target.hpp>
#include <halftone/tensor/shape.hpp>

namespace bench {

/// The numbers of "256x2304x768": as many as `count`, of digits alone, from 1 to `most`. Empty if the text is anything else.
inline std::vector<halftone::extent> numbers_named(std::string_view text, std::size_t count, halftone::extent most) {
    std::vector<halftone::extent> all;
    while (all.size() < count) {
        const std::size_t end = std::min(text.find('x'), text.size());
        halftone::extent n = 0;
        for (const char c : text.substr(0, end)) {
            if (c < '0' || c > '9' || n > most) return {};
            n = 10 * n + (c - '0');
        }
        if (n < 1 || n > most) return {};
        all.push_back(n);
        if (end == text.size()) break;
        text.remove_prefix(end + 1);
        if (all.size() == count) return {};
    }
    return all.size() == count ? all : std::vector<halftone::extent>{};
}

/// Throws an error for an option that is given beside --plan and is none of `heeded`.
inline void refuse_beside_plan(const CLI::App& app, const std::vector<std::string>& heeded) {
    for (const CLI::Option* option : app.get_options()) {
        const std::string name = option->get_name();
        if (option->count() > 0 && std::find(heeded.begin(), heeded.end(), name) == heeded.end())
            throw CLI::ValidationError(name,
                                       "has no meaning beside --plan, which measures nothing and prints the plan");
    }
}

/// What --plan, --device and --types ask for.
struct gpu_options {
    std::string shape, device;       ///< empty: not given
    std::vector<std::string> types;  ///< empty: all

    bool wants(const std::string& name) const {
        return types.empty() || std::find(types.begin(), types.end(), name) != types.end();
    }
    halftone::simt::target target() const { return *halftone::simt::target_named(device); }

    /// Adds --device and --types, of which `named` has the names; returns --device.
    template <class Types>
    CLI::Option* add(CLI::App& app, CLI::Option* plan, const Types& named) {
        const std::string known = halftone::simt::target_names();
        CLI::Option* const option = app.add_option("--device", device, "the plan of this GPU, " + known)
                                        ->check([known](const std::string& text) {
                                            return halftone::simt::target_named(text)
                                                       ? std::string()
                                                       : "expected one of " + known + ", not " + text;
                                        })
                                        ->needs(plan);
        std::vector<std::string> names;
        for (const auto& t : named) names.emplace_back(t.name);
        app.add_option("--types", types, "with --device: these alone, separated by commas")
            ->delimiter(',')
            ->check(CLI::IsMember(names))
            ->needs(option);
        return option;
    }
};

}  // namespace bench
