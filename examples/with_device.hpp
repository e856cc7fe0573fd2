// SPDX-License-Identifier: MIT
/// \file
/// The command line of lessons that need a device: the CPU, or with `--device cuda` the GPU, if nvcc compiled them.
///
///     int main(int argc, char** argv) {
///         return with_device(argc, argv, [](auto& device) { lesson(device); });      // ht::cpu& or ht::cuda&
///     }
///
/// Errors print one line and give an exit code: 3 if there is no usable GPU, 2 for all others.
#pragma once

#include <cstdio>
#include <optional>
#include <string_view>

#include <halftone/amp.hpp>

inline int end_with(int code, const char* line) {
    std::fprintf(stderr, "%s\n", line);
    return code;
}

#if defined(__CUDACC__)
#include <halftone/cuda.cuh>

template <class Lesson>
int with_gpu(const Lesson& lesson) {
    std::optional<halftone::cuda> device;
    try {
        device.emplace();
    } catch (const halftone::error& e) {
        return end_with(3, e.what());
    }
    lesson(*device);
    return 0;
}
#else
template <class Lesson>
int with_gpu(const Lesson&) {
    return end_with(3, "cuda: this program was built without it; nvcc -x cu compiles the same file");
}
#endif

template <class Lesson>
int with_device(int argc, char** argv, const Lesson& lesson) try {
    const bool is_named = argc == 3 && std::string_view(argv[1]) == "--device";
    const std::string_view name = is_named ? argv[2] : argc == 1 ? "cpu" : "";
    if (name == "cuda") return with_gpu(lesson);
    if (name != "cpu") return end_with(2, "expected no argument, or --device cpu, or --device cuda");
    halftone::cpu device;
    lesson(device);
    return 0;
} catch (const halftone::error& e) {  // an instruction set that the processor lacks, say
    return end_with(2, e.what());
}
