// SPDX-License-Identifier: MIT
/// \file
/// Two libraries that both use halftone on a GPU, in one program: each must find its own kernels. Without a GPU each
/// must load and say so.
#include <cstdio>

#include "library.hpp"

int main() {
    for (int round = 0; round < 2; ++round) {
        const std::string first = one::try_gpu(), second = two::try_gpu();
        std::printf("one: %s\ntwo: %s\n", first.c_str(), second.c_str());
        const bool both_work = first == "works" && second == "works";
        const bool no_gpu = first == second && first.rfind("no usable GPU: cuda: cudaGetDeviceCount gave ", 0) == 0;
        if (!both_work && !no_gpu) return 1;
    }
    return 0;
}
