// SPDX-License-Identifier: MIT
/// \file
/// A target for clang's libFuzzer: -DFUZZ_TARGET=0 is the first of targets.hpp. tests/fuzz/run.sh --fuzz compiles and runs all.
#include "targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    fuzz::run(fuzz::all[FUZZ_TARGET], bytes, size);
    return 0;
}
