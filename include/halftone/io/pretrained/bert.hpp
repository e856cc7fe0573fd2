// SPDX-License-Identifier: MIT
/// \file
/// BERT as Hugging Face's transformers stores it, into ht::nn::classifier, or into an ht::nn::encoder of a model of yours, and back:
/// a folder of config.json and model.safetensors, or of several files with an index.
///
///     ht::nn::classifier<ht::amp_bf16> model{device, ht::read_bert_config("sentiment")};   // BertForSequenceClassification
///     ht::load_pretrained(model, "sentiment");
///     ht::save_pretrained(model, "tuned", {.like = "sentiment"});
///
///     ht::load_pretrained(model.parameters(), model.encode(), "bert-base-uncased");        // the encoder alone: a new head
///
/// transformers' names and halftone's paths, below those of the encoder:
///
///     bert.embeddings.word_embeddings.weight               embed.tokens
///     bert.embeddings.position_embeddings.weight           embed.positions
///     bert.embeddings.token_type_embeddings.weight         embed.types.tokens
///     bert.embeddings.LayerNorm.weight, .bias              embed.norm.gain, .bias
///     bert.encoder.layer.0.attention.self.query, .key, .value     h.0.attn.qkv, one behind the other
///     bert.encoder.layer.0.attention.output.dense          h.0.attn.proj
///     bert.encoder.layer.0.attention.output.LayerNorm      h.0.attn.norm
///     bert.encoder.layer.0.intermediate.dense              h.0.mlp.up
///     bert.encoder.layer.0.output.dense                    h.0.mlp.down
///     bert.encoder.layer.0.output.LayerNorm                h.0.mlp.norm
///     bert.pooler.dense                                    pooler
///     classifier                                           head, of ht::nn::classifier
///
/// A BertModel's files have no prefix "bert.". Old files call weights and biases of norms "gamma" and "beta", and have
/// "position_ids", the numbers of the positions, which are not read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halftone/io/pretrained/folder.hpp>
#include <halftone/nn/classifier.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The number of classes in a configuration: transformers counts their names, and has two by default.
inline extent bert_labels(const config_reader& config) {
    constexpr extent most = extent{1} << 24;
    if (!config.has("id2label")) return config.size("num_labels", most, 2);
    const nlohmann::json& names = config["id2label"];
    if (!names.is_object() || names.empty())
        fail<safetensors_error>(config.where(), ": id2label is ", shown(names.dump()), "; expected names of classes");
    return static_cast<extent>(names.size());
}

inline nn::classifier_config bert_config_in(const config_reader& config) {
    if (!config.has("model_type") || config["model_type"] != "bert")
        fail<safetensors_error>(config.where(), ": model_type is not \"bert\"");
    config.refuse("quantization_config");
    constexpr extent most = extent{1} << 24;
    nn::classifier_config all;
    nn::encoder_config& c = all.encoder;
    c.vocab_size = config.size("vocab_size", most);
    c.hidden_size = config.size("hidden_size", most);
    c.num_hidden_layers = static_cast<int>(config.size("num_hidden_layers", 1 << 16));
    c.num_attention_heads = config.size("num_attention_heads", most);
    c.intermediate_size = config.size("intermediate_size", most);
    c.max_position_embeddings = config.size("max_position_embeddings", most);
    c.type_vocab_size = config.size("type_vocab_size", most, 2);
    c.layer_norm_eps = static_cast<float>(config.positive("layer_norm_eps", 1e-12));
    // transformers' names of one formula, with the error function.
    config.expect("hidden_act", "gelu", {"gelu_python"});
    config.expect("position_embedding_type", "absolute", {nullptr});
    for (const char* const of_decoders : {"is_decoder", "is_encoder_decoder", "add_cross_attention"})
        config.expect(of_decoders, false, {nullptr});
    config.expect("pruned_heads", nlohmann::json::object(), {nullptr});
    if (!config.keys().contains("pad_token_id")) {
        c.pad_token_id = 0;
    } else if (config.has("pad_token_id")) {
        const nlohmann::json& pad = config["pad_token_id"];
        if (!pad.is_number_integer() || pad.get<extent>() < 0 || pad.get<extent>() >= c.vocab_size)
            fail<safetensors_error>(config.where(), ": pad_token_id is ", shown(pad.dump()),
                                    "; expected a token of the vocabulary");
        c.pad_token_id = pad.get<extent>();
    }
    all.num_labels = bert_labels(config);
    return all;
}

}  // namespace detail

/// The sizes of a BERT from its config.json, of transformers 5 or before; `path` is this file or its folder. `encoder` of the result
/// is that of an ht::nn::encoder. Dropouts are not read: training sets hidden_dropout_prob and classifier_dropout. Throws io_error;
/// safetensors_error for another model, and, with the name of the key, for what ht::nn::encoder does not compute: another activation
/// than gelu with the error function, positions that are not absolute, decoders, cross-attention, heads that were taken out,
/// quantised weights.
inline nn::classifier_config read_bert_config(const std::filesystem::path& path) {
    return detail::bert_config_in(detail::config_reader(path));
}

namespace detail {

/// The sizes that an encoder was made with; without blocks, no heads and no intermediate size.
template <class P>
nn::encoder_config sizes_of_encoder(const nn::encoder<P>& layer) {
    nn::encoder_config c;
    c.vocab_size = layer.embed.tokens.shape()[0];
    c.hidden_size = layer.embed.tokens.shape()[1];
    c.max_position_embeddings = layer.embed.positions.shape()[0];
    c.type_vocab_size = layer.types.tokens.shape()[0];
    c.layer_norm_eps = layer.embed_norm.epsilon;
    c.num_hidden_layers = 0, c.num_attention_heads = 0, c.intermediate_size = 0;
    layer.h.each([&c](const auto& block) {
        ++c.num_hidden_layers;
        c.num_attention_heads = block.attn.heads;
        c.intermediate_size = block.mlp_.up.weight.shape()[0];
    });
    return c;
}

/// Throws safetensors_error if a config.json is of a model that nn::encoder does not compute, or of one of other sizes.
inline nn::classifier_config check_bert_config(const std::filesystem::path& file, const nn::encoder_config& model) {
    const nn::classifier_config all = read_bert_config(file);
    const nn::encoder_config& c = all.encoder;
    config_comparison compare;
    compare("vocab_size", c.vocab_size, model.vocab_size);
    compare("hidden_size", c.hidden_size, model.hidden_size);
    compare("num_hidden_layers", c.num_hidden_layers, model.num_hidden_layers);
    compare("num_attention_heads", c.num_attention_heads, model.num_attention_heads);
    compare("intermediate_size", c.intermediate_size, model.intermediate_size);
    compare("max_position_embeddings", c.max_position_embeddings, model.max_position_embeddings);
    compare("type_vocab_size", c.type_vocab_size, model.type_vocab_size);
    compare("layer_norm_eps", c.layer_norm_eps, model.layer_norm_eps);
    compare.check(file.string());
    return all;
}

/// How files store a BERT. Parameters that are neither below the encoder's path nor below the head's have no name.
class bert_file_names {
  public:
    /// `encoder` and `head` are paths of the model; the latter is empty for an encoder alone.
    bert_file_names(std::string encoder, std::string head, extent width)
        : encoder_(std::move(encoder)), head_(std::move(head)), prefix_(head_.empty() ? "" : "bert."), width_(width) {
        if (!encoder_.empty()) encoder_ += '.';
        if (!head_.empty()) head_ += '.';
    }
    /// From now on the names are those of these files, with the prefix "bert." or without, of norms of today or of old.
    void take_from(const tensor_files& files) {
        prefix_ = files.find(table) != nullptr ? "" : "bert.";
        for (const tensor_info& t : files.tensors()) are_old_ = are_old_ || t.name.ends_with("LayerNorm.gamma");
    }

    static constexpr const char* table = "embeddings.word_embeddings.weight";
    /// Whether a tensor of such files is of something else than the encoder: of a head, or the numbers of the positions.
    bool is_beside(const std::string& tensor) const {
        return tensor == prefix_ + "embeddings.position_ids" ||
               (head_.empty() && !prefix_.empty() && !tensor.starts_with(prefix_));
    }

    /// transformers' name of a parameter that is one tensor.
    std::string operator()(const std::string& path) const {
        if (!head_.empty() && path.starts_with(head_)) return "classifier." + path.substr(head_.size());
        if (!path.starts_with(encoder_)) return {};
        const auto [block, rest] = divided(path);
        static constexpr struct {
            std::string_view here, there;
        } layers[] = {{"attn.proj.", "attention.output.dense."},
                      {"attn.norm.", "attention.output.LayerNorm."},
                      {"mlp.up.", "intermediate.dense."},
                      {"mlp.down.", "output.dense."},
                      {"mlp.norm.", "output.LayerNorm."}},
          around[] = {{"embed.norm.", "embeddings.LayerNorm."}, {"pooler.", "pooler.dense."}};
        if (rest == "embed.tokens") return block + table;
        if (rest == "embed.positions") return block + "embeddings.position_embeddings.weight";
        if (rest == "embed.types.tokens") return block + "embeddings.token_type_embeddings.weight";
        const auto named = [this, &block = block, &rest = rest](const auto& list) {
            for (const auto& each : list) {
                if (rest.starts_with(each.here))
                    return block + std::string(each.there) + last_word(rest.substr(each.here.size()), each.here);
            }
            return std::string();
        };
        const std::string name = rest.size() + encoder_.size() == path.size() ? named(around) : named(layers);
        if (name.empty()) fail<argument_error>("bert: ", path, " is no parameter of ht::nn::encoder");
        return name;
    }
    /// The tensors of a parameter that is several.
    std::vector<weight_piece> pieces(const std::string& path) const {
        if (!path.starts_with(encoder_)) return {};
        const auto [block, rest] = divided(path);
        if (!rest.starts_with("attn.qkv.")) return {};
        const std::string end = rest.substr(std::string("attn.qkv").size());  // .weight or .bias
        return {{block + "attention.self.query" + end, width_},
                {block + "attention.self.key" + end, width_},
                {block + "attention.self.value" + end, width_}};
    }

  private:
    std::string last_word(const std::string& word, std::string_view layer) const {
        if (!layer.ends_with("norm.")) return word;
        if (are_old_) return word == "gain" ? "gamma" : "beta";
        return word == "gain" ? "weight" : word;
    }
    /// "bert.encoder.layer.0." and "attn.proj.weight" of "h.0.attn.proj.weight", "bert." and the path of one outside of blocks.
    std::pair<std::string, std::string> divided(const std::string& path) const {
        const std::string below = path.substr(encoder_.size());
        if (!below.starts_with("h.")) return {prefix_, below};
        const std::size_t end = below.find('.', 2);
        return {prefix_ + "encoder.layer." + below.substr(2, end - 1), below.substr(end + 1)};
    }

    std::string encoder_, head_, prefix_;
    extent width_;
    bool are_old_ = false;
};

template <class P>
bert_file_names bert_names_of(const nn::encoder<P>& layer, const std::string& head) {
    return {path_of<P>.text().data, head, layer.embed.tokens.shape()[1]};
}
template <class P>
std::string bert_head_of(const nn::classifier<P>&) {
    return path_of<at<P, "head">>.text().data;
}

inline void load_bert(store& parameters, bert_file_names names, const tensor_files& files,
                      const std::filesystem::path& path) {
    names.take_from(files);
    load_weights_of(parameters, files, path.string(),
                    {.names = names,
                     .ignored = [&names](const std::string& tensor) { return names.is_beside(tensor); },
                     .pieces = [&names](const std::string& at) { return names.pieces(at); },
                     .one_at_a_time = true,
                     .which = weights_of::base});
}

}  // namespace detail

/// Reads a BERT's weights into an encoder, a layer of the model with these parameters: from a .safetensors file, an index, or a
/// folder with either, of a BertModel or of a model with any head, which is left out. The model's other parameters stay as they are.
/// One tensor at a time is in host memory. A config.json beside the weights is compared with the layer. Throws as load_weights does: names
/// of what is missing, such as a pooler, unexpected or of another shape. If reading fails on the way the model has a part of the weights.
template <class P>
void load_pretrained(store& parameters, const nn::encoder<P>& layer, const std::filesystem::path& path) {
    const tensor_files files(path);
    if (const auto config = detail::config_beside(path); detail::is_there(config))
        detail::check_bert_config(config, detail::sizes_of_encoder(layer));
    detail::load_bert(parameters, detail::bert_names_of(layer, ""), files, path);
}
/// Reads the weights of a BertForSequenceClassification, likewise. Throws safetensors_error for files without a classifier, too.
template <class P>
void load_pretrained(nn::classifier<P>& model, const std::filesystem::path& path) {
    const tensor_files files(path);
    if (files.find("classifier.weight") == nullptr)
        fail<safetensors_error>(path.string(),
                                ": there is no classifier.weight; the encoder alone is loaded by "
                                "ht::load_pretrained(model.parameters(), model.encode(), path)");
    if (const auto config = detail::config_beside(path); detail::is_there(config)) {
        const auto there = detail::check_bert_config(config, detail::sizes_of_encoder(model.encode()));
        detail::config_reader(config).expect("problem_type", "single_label_classification", {nullptr});
        detail::config_comparison compare;
        compare("the number of labels", static_cast<double>(there.num_labels),
                static_cast<double>(model.config().num_labels));
        compare.check(config.string());
    }
    detail::load_bert(model.parameters(), detail::bert_names_of(model.encode(), detail::bert_head_of(model)), files,
                      path);
}

namespace detail {

/// A configuration with nothing made up; an absent pad_token_id would be 0.
inline nlohmann::json bert_config_of(const nn::encoder_config& c, const std::optional<extent>& padding) {
    nlohmann::json config = {{"model_type", "bert"},
                             {"vocab_size", c.vocab_size},
                             {"hidden_size", c.hidden_size},
                             {"num_hidden_layers", c.num_hidden_layers},
                             {"num_attention_heads", c.num_attention_heads},
                             {"intermediate_size", c.intermediate_size},
                             {"max_position_embeddings", c.max_position_embeddings},
                             {"type_vocab_size", c.type_vocab_size},
                             {"layer_norm_eps", shortest(c.layer_norm_eps)},
                             {"hidden_act", "gelu"},
                             {"position_embedding_type", "absolute"},
                             {"hidden_dropout_prob", 0.0},
                             {"attention_probs_dropout_prob", 0.0},
                             {"pad_token_id", nullptr}};
    if (padding) config["pad_token_id"] = *padding;
    return config;
}
/// The configuration to be saved of an encoder, like that of another folder or with nothing made up.
template <class P>
nlohmann::json bert_config_to_save(const nn::encoder<P>& layer, const char* architecture,
                                   const std::filesystem::path& like) {
    const nn::encoder_config c = sizes_of_encoder(layer);
    nlohmann::json config = bert_config_of(c, layer.embed.padding_idx);
    if (!like.empty()) {
        check_bert_config(config_file_of(like), c);
        config = config_like(like);
    }
    config["architectures"] = nlohmann::json::array({architecture});
    if (layer.dropout_probability != 0) config["hidden_dropout_prob"] = shortest(layer.dropout_probability);
    return config;
}
/// Gives classes transformers' names, LABEL_0 and so on, unless the configuration has names for as many.
inline void name_labels(nlohmann::json& config, extent labels) {
    const auto named = config.find("id2label");
    if (named != config.end() && named->is_object() && named->size() == static_cast<std::size_t>(labels)) return;
    nlohmann::json names = nlohmann::json::object(), ids = nlohmann::json::object();
    for (extent i = 0; i < labels; ++i) {
        const std::string name = "LABEL_" + std::to_string(i);
        names[std::to_string(i)] = name, ids[name] = i;
    }
    config["id2label"] = names, config["label2id"] = ids;
    config.erase("num_labels");
}
inline void save_bert(const store& parameters, const bert_file_names& names, const std::filesystem::path& folder,
                      const nlohmann::json& config, const save_pretrained_options& options) {
    save_folder(parameters, folder, config, options,
                {.names = names, .pieces = [names](const std::string& at) { return names.pieces(at); }});
}

}  // namespace detail

/// Writes an encoder, a layer of the model with these parameters, and its config.json into a folder, which transformers loads as a
/// BertModel; the configuration after the weights. A dropout of the model replaces that of `like` unless it is 0. Throws io_error,
/// and safetensors_error if `like` is of another model.
template <class P>
void save_pretrained(const store& parameters, const nn::encoder<P>& layer, const std::filesystem::path& folder,
                     const save_pretrained_options& options = {}) {
    const nlohmann::json config = detail::bert_config_to_save(layer, "BertModel", options.like);
    detail::save_bert(parameters, detail::bert_names_of(layer, ""), folder, config, options);
}
/// Writes a classifier likewise, as a BertForSequenceClassification. Names of classes are those of `like` if it has as many.
template <class P>
void save_pretrained(const nn::classifier<P>& model, const std::filesystem::path& folder,
                     const save_pretrained_options& options = {}) {
    const auto& c = model.config();
    nlohmann::json config = detail::bert_config_to_save(model.encode(), "BertForSequenceClassification", options.like);
    detail::name_labels(config, c.num_labels);
    if (c.classifier_dropout != 0) config["classifier_dropout"] = detail::shortest(c.classifier_dropout);
    if (options.like.empty()) config["problem_type"] = "single_label_classification";
    detail::save_bert(model.parameters(), detail::bert_names_of(model.encode(), detail::bert_head_of(model)), folder,
                      config, options);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
