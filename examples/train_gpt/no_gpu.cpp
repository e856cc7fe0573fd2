// SPDX-License-Identifier: MIT
#include "device_runs.hpp"

namespace {
[[noreturn]] void complain() { throw exit_with(3, "--device cuda: this program was built without CUDA"); }
}  // namespace

gpu_names describe_gpu() { complain(); }
run_result planned_on_gpu(const task&, bool) { complain(); }
run_result run_on_gpu(const task&, const surroundings&, run_view&) { complain(); }
