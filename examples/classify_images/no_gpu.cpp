// SPDX-License-Identifier: MIT
#include "data.hpp"

gpu_names describe_gpu() { refuse_gpu(); }
classifier_result run_on_gpu(const std::string&, const image_data&, const run_options&) { refuse_gpu(); }
