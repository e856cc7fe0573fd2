// SPDX-License-Identifier: MIT
#include "model.hpp"

gpu_names describe_gpu() { refuse_gpu(); }
classifier_result run_on_gpu(const std::string&, const text_data&, const text_options&) { refuse_gpu(); }
