// SPDX-License-Identifier: MIT
#include "model.hpp"

gpu_names describe_gpu() { refuse_gpu(); }
std::unique_ptr<language_model> load_on_gpu(const model_options&) { refuse_gpu(); }
