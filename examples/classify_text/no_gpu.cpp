// SPDX-License-Identifier: MIT
#include "model.hpp"

gpu_names describe_gpu() { throw exit_with(3, "--device cuda: this program was built without CUDA"); }

classifier_result run_on_gpu(const std::string&, const text_data&, const text_options&) {
    throw exit_with(3, "--device cuda: this program was built without CUDA");
}
