// SPDX-License-Identifier: MIT
/// \file
/// The option --device of programs that print a GPU's plans without a GPU.
///
///     bench::add_gpu_target(app, name)->needs(plan);     // --device sm_90a
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include <halftone/exec/simt/target.hpp>

namespace bench {

inline CLI::Option* add_gpu_target(CLI::App& app, std::string& name) {
    return app.add_option("--device", name, "the plan of this GPU, " + halftone::simt::target_names())
        ->check([](const std::string& text) {
            return halftone::simt::target_named(text)
                       ? std::string()
                       : "expected one of " + halftone::simt::target_names() + ", not " + text;
        });
}

}  // namespace bench
