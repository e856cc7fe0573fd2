// SPDX-License-Identifier: MIT
#include "data.hpp"

gpu_names describe_gpu() { throw exit_with(3, "--device cuda: this program was built without CUDA"); }

classifier_result run_on_gpu(const std::string&, const image_data&, const run_options&) {
    throw exit_with(3, "--device cuda: this program was built without CUDA");
}
