// SPDX-License-Identifier: MIT
/// \file
/// How the authors of a model let it generate: the tokens that end a text, the temperature and what else chooses tokens, as
/// transformers' model.generate takes them from a folder.
///
///     ht::generation_options o = ht::read_generation_options("Qwen2.5-0.5B-Instruct");    // or a GGUF file: ends alone
///     o.max_new_tokens = 256;
///     model.generate(eval, prompts, o);
#pragma once

#include <filesystem>
#include <optional>

#include <halftone/io/pretrained/folder.hpp>
#include <halftone/nn/token_sampler.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The file with a folder's options of generation: without a generation_config.json of its own, config.json.
inline std::filesystem::path generation_file_of(const std::filesystem::path& path) {
    std::filesystem::path config = config_file_of(path);
    const std::filesystem::path own = config.parent_path() / "generation_config.json";
    return is_there(path) && is_there(own) ? own : config;
}

/// The tokens that end a text: none, one, or a list.
inline std::vector<std::int32_t> read_ends(const config_reader& config) {
    std::vector<std::int32_t> ends;
    if (!config.has("eos_token_id")) return ends;
    const nlohmann::json there = config["eos_token_id"],
                         all = there.is_array() ? there : nlohmann::json::array({there});
    for (const nlohmann::json& id : all) {
        if (!id.is_number_integer() || id < 0 || id > 2147483647)
            fail<safetensors_error>(config.where(), ": eos_token_id is ", shown(there.dump()),
                                    "; expected an id, or a list of them");
        ends.push_back(id.get<std::int32_t>());
    }
    return ends;
}

/// Refuses what would choose other tokens than halftone does: keys with another value than the one that changes nothing.
inline void refuse_other_generation(const config_reader& config) {
    for (const char* const key :
         {"bad_words_ids", "begin_suppress_tokens", "constraints", "dola_layers", "exponential_decay_length_penalty",
          "force_words_ids", "forced_bos_token_id", "forced_eos_token_id", "penalty_alpha", "sequence_bias",
          "stop_strings", "suppress_tokens", "top_h", "watermarking_config"})
        config.refuse(key);
    for (const auto& [key, neutral] :
         {std::pair("num_beams", 1), std::pair("num_beam_groups", 1), std::pair("min_length", 0),
          std::pair("min_new_tokens", 0), std::pair("min_p", 0), std::pair("no_repeat_ngram_size", 0),
          std::pair("encoder_no_repeat_ngram_size", 0), std::pair("encoder_repetition_penalty", 1),
          std::pair("typical_p", 1), std::pair("epsilon_cutoff", 0), std::pair("eta_cutoff", 0),
          std::pair("guidance_scale", 1), std::pair("diversity_penalty", 0)})
        config.expect(key, neutral, {nullptr});
}

/// What a generation_config.json, or a config.json, says of these options.
inline generation_options generation_options_in(const config_reader& config) {
    generation_options o;
    refuse_other_generation(config);
    o.eos = read_ends(config);
    o.repetition_penalty = config.positive("repetition_penalty", 1);
    o.max_new_tokens = config.size("max_new_tokens", extent{1} << 30, o.max_new_tokens);
    if (!config.flag("do_sample", false)) return o;
    o.temperature = config.positive("temperature", 1);
    const bool is_all = config.has("top_k") && config["top_k"] == 0;
    o.top_k = is_all ? 0 : config.size("top_k", extent{1} << 30, 50);
    o.top_p = config.positive("top_p", 1);
    if (o.top_p > 1) fail<safetensors_error>(config.where(), ": top_p is ", o.top_p, "; expected at most 1");
    return o;
}

}  // namespace detail

/// The options of generation_config.json in a folder, or beside its config.json, with transformers' defaults for what it does not
/// say: the most likely tokens unless do_sample is true, and then a temperature of 1 and a top_k of 50. Without such a file they are
/// those of config.json; of a GGUF file there are the ids of eos, eot and eom alone. max_new_tokens is that of the file, or the
/// default. Throws io_error; safetensors_error or gguf_error for a damaged file, and, with the name of the key, for what halftone
/// does not compute, such as several beams.
inline generation_options read_generation_options(const std::filesystem::path& path) {
    if (!detail::is_gguf(path))
        return detail::generation_options_in(detail::config_reader(detail::generation_file_of(path)));
    generation_options o;
    const gguf_tokenizer keys = read_gguf_tokenizer(gguf_file(path).metadata());
    for (const auto& id : {keys.eos, keys.eot, keys.eom}) {
        if (id) o.eos.push_back(static_cast<std::int32_t>(*id));
    }
    return o;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
