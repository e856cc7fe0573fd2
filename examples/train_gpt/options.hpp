// SPDX-License-Identifier: MIT
/// \file
/// The command line of train_gpt.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <halftone/data/tokens.hpp>

#include "../command_line.hpp"
#include "../seeing_options.hpp"

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {
struct llama_config;
}
}  // namespace HALFTONE_ABI
}  // namespace halftone

struct options : seeing_options {
    std::string model = "gpt";                ///< or llama
    std::vector<std::string> policies{"full_fp32", "amp_fp16", "amp_bf16"};
    std::vector<std::filesystem::path> text;  ///< empty: this repository's own text
    std::filesystem::path tokens;             ///< a token file in place of a text; empty: none
    std::int64_t vocabulary = 256;            ///< of the token file; a text has the 256 bytes
    std::filesystem::path init;               ///< a model of Hugging Face, whose weights are the first; empty: none
    std::shared_ptr<const halftone::nn::llama_config> llama;  ///< of the Llama of --init; null: none
    std::filesystem::path like;                               ///< the config.json of --init; empty: none
    std::filesystem::path export_to;  ///< folder for the trained model as transformers reads it; empty: none
    std::filesystem::path out = "train_gpt_out";
    std::string device = "cpu";
    std::string isa;                          ///< empty: this machine's fastest
    int threads = 0;                          ///< 0: all cores; with several ranks those of each, 0: an equal part
    std::int64_t ranks = 1;                   ///< that train together, as threads or, under mpirun, processes
    std::int64_t deadline = 60;               ///< seconds that ranks wait for each other
    std::int64_t zero = 0;                    ///< what they divide: the stage of ZeRO; 0: nothing
    std::vector<std::string> units{"h.*"};    ///< layers whose parameters are gathered together

    std::int64_t layers = 4, heads = 4, width = 256, context = 128;
    std::int64_t positions = 0;               ///< of a GPT-2 of --init: its context; 0: as context
    std::int64_t kv_heads = 2;                ///< of a llama: heads of keys and values
    std::int64_t batch = 4, accumulation = 1, steps = 500;
    std::int64_t checkpointing = 0;           ///< every n-th block is computed again in the backward pass; 0: none
    std::string optimizer = "adamw";          ///< or adamw_8bit
    double learning_rate = 1e-3;
    std::uint64_t seed = 1;

    std::int64_t save_steps = 0;              ///< steps between two checkpoints; 0: none
    std::int64_t save_total_limit = 2;        ///< the newest checkpoints of a policy that are kept; 0: all
    bool resume = false;                      ///< from the newest good checkpoint below `out`

    std::int64_t eval_every = 0;              ///< 0: only at the end
    std::int64_t eval_windows = 256;          ///< 0: all
    std::int64_t write = 200;                 ///< bytes of text that the model writes at the end
    std::int64_t eval_batch = 0;              ///< by --budget: windows of an evaluation's batch; 0: as batch says
    std::int64_t budget = 0;                  ///< bytes that training may have in use; 0: no limit
    std::int64_t recomputed_blocks = 0;       ///< by --budget: the first blocks that are computed again
    bool keeps_logits = true;                 ///< by --budget: whether logits are kept for the backward pass where small
    bool plan = false;                        ///< tell the memory that training would need, and do not train
    std::string memory_history;               ///< file for the history of memory, by its ending; empty: none
    std::filesystem::path peaks;              ///< file with the machine's peaks; empty: measure them
    bool estimate = true;                     ///< tell the time of the whole run before it begins
    bool watch = false;                       ///< report for each skipped step where it overflowed
    std::int64_t numerics_every = 0;          ///< steps between two numerics reports; 0: none
    std::int64_t shadow_step = 0;             ///< the step of the shadow run in fp32; 0: none
};

/// Parses the command line of a program of so many processes; empty if --help or --version has been answered. Throws exit_with(2) for invalid arguments.
std::optional<options> parse_options(int argc, char** argv, int processes);

/// What is trained on: the bytes of a text, or the ids of a token file.
struct training_text {
    std::string bytes;
    std::vector<std::int32_t> ids;
    bool has_ids = false;

    halftone::token_view view() const {
        return has_ids ? halftone::token_view{std::span<const std::int32_t>(ids)} : halftone::token_view{bytes};
    }
    const char* unit() const { return has_ids ? "token" : "byte"; }
    std::string_view all_bytes() const {
        return has_ids ? std::string_view(reinterpret_cast<const char*>(ids.data()), 4 * ids.size()) : std::string_view(bytes);
    }
};

/// The text or the tokens that the options name, with at least one window for training and one for validation. Throws
/// exit_with(2).
training_text read_corpus(const options& o);
