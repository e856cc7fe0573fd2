// SPDX-License-Identifier: MIT
/// \file
/// How the programs here begin to use a GPU.
#pragma once

#include <memory>
#include <string>

#include <halftone/exec/cuda/cuda.cuh>

#include "command_line.hpp"

/// A GPU. Throws exit_with(3) if there is none.
inline std::unique_ptr<halftone::cuda> begin_gpu() {
    try {
        return std::make_unique<halftone::cuda>();
    } catch (const halftone::error& e) {
        throw exit_with(3, std::string("--device cuda: ") + e.what());
    }
}

/// Calls f with a GPU, or throws exit_with(3) if there is none.
template <class Function>
auto with_gpu(const Function& f) {
    const auto device = begin_gpu();
    return f(*device);
}
