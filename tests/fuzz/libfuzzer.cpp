// SPDX-License-Identifier: MIT
/// \file
/// The targets for clang's libFuzzer: the environment variable HALFTONE_FUZZ names the one that runs. tests/fuzz/run.sh --fuzz
/// compiles them, and runs all.
#include <cstdio>

#include "targets.hpp"

namespace {

const fuzz::target& named_target() {
    const char* const name = std::getenv("HALFTONE_FUZZ");
    for (const fuzz::target& t : fuzz::all) {
        if (name != nullptr && std::string_view(name) == t.name) return t;
    }
    std::fprintf(stderr, "HALFTONE_FUZZ names no target of tests/fuzz/targets.hpp\n");
    std::_Exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    static const fuzz::target& target = named_target();
    fuzz::run(target, bytes, size);
    return 0;
}
