// SPDX-License-Identifier: MIT
#include "gpu.hpp"

gpu_names describe_gpu() { throw exit_with(3, "--device cuda: this program was built without CUDA"); }

run_result run_on_gpu(const std::string&, const options&, const halftone::token_view&, const surroundings&, run_view&) {
    throw exit_with(3, "--device cuda: this program was built without CUDA");
}

run_plan plan_on_gpu(const std::string&, const options&, const halftone::token_view&) {
    throw exit_with(3, "--device cuda: this program was built without CUDA");
}
run_result choose_on_gpu(const std::string&, const options&, const halftone::token_view&) {
    throw exit_with(3, "--device cuda: this program was built without CUDA");
}
