// SPDX-License-Identifier: MIT
#include "device_runs.hpp"

gpu_names describe_gpu() { refuse_gpu(); }
run_result planned_on_gpu(const task&, bool) { refuse_gpu(); }
run_result run_on_gpu(const task&, const surroundings&, run_view&) { refuse_gpu(); }
