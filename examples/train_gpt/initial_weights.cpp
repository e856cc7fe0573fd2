// SPDX-License-Identifier: MIT
#include "initial_weights.hpp"

#include <halftone/io/gpt2.hpp>

namespace ht = halftone;

void take_sizes_of_initial_weights(options& o) {
    try {
        const bool is_folder = std::filesystem::is_directory(o.init);
        const ht::nn::gpt_config c = ht::read_gpt2_config((is_folder ? o.init : o.init.parent_path()) / "config.json");
        o.vocabulary = c.vocabulary, o.positions = c.context;
        o.layers = c.layers, o.heads = c.heads, o.width = c.width;
    } catch (const ht::io_error& e) {
        throw exit_with(2, std::string("--init: ") + e.what());
    }
}
