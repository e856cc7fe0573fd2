// SPDX-License-Identifier: MIT
/// \file
/// BERT in transformers' folders (golden/bert_folders, golden/bert.py): the parameters of loaded encoders and classifiers, the way back,
/// files of old and with other heads, and what is refused.
#include <cstdlib>
#include <fstream>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/io/pretrained.hpp>

#include "io/pretrained_checks.hpp"
#include "nn/encoder_checks.hpp"
#include "support/temporary_folder.hpp"

namespace io_bert_tests {

namespace ht = halftone;
using pretrained_checks::changed_folder, pretrained_checks::copy_renamed, pretrained_checks::message_of,
    pretrained_checks::values_of;
using namespace encoder_test;

const std::filesystem::path folders = std::filesystem::path(HALFTONE_TEST_DATA) / "bert_folders";
using classifier = ht::nn::classifier<ht::full_fp32>;

/// A model of the user's own with an encoder, which is a BertModel below "text.bert".
struct two_layers : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::linear<ht::at<policy, "before">> before;
    ht::nn::encoder<ht::at<ht::at<policy, "text">, "bert">> bert;

    two_layers(ht::cpu& device, const ht::nn::encoder_config& c, std::uint64_t seed = 0)
        : model{device}, before{parameters(), 3, 4}, bert{parameters(), c} {
        commit(*this, seed);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.before, self.bert); }
};

/// The values of the parameters below a path, which is left out of their names.
std::vector<float> values_below(const ht::store& parameters, const std::string& path) {
    std::vector<float> all;
    for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
        if (!parameters.entries()[i].path.starts_with(path)) continue;
        const auto values = support::read_masters(parameters, i);
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

/// $HALFTONE_SAVED_BERTS keeps the folders, which golden/bert.py --compare reads by transformers.
std::filesystem::path kept_or(const support::temporary_folder& temporary) {
    return pretrained_checks::kept_or("HALFTONE_SAVED_BERTS", temporary);
}

TEST_CASE("bert folders: a classifier is transformers', and a saved folder has its tensors") {
    ht::cpu device{{.threads = 1}};
    const ht::nn::classifier_config c = ht::read_bert_config(folders / "classifier");
    CHECK(c.num_labels == 5);
    CHECK(c.encoder.pad_token_id == 0);
    classifier model{device, c, 1}, expected{device, config_of("padded")};
    inputs in(expected);  // whose golden logits golden/bert.txt has
    ht::load_pretrained(model, folders / "classifier");
    CHECK(values_of(model.parameters()) == values_of(expected.parameters()));
    ht::inference eval{device};
    CHECK(support::doubles(model.logits(eval, in.tokens, in.token_types).view()) ==
          support::doubles(expected.logits(eval, in.tokens, in.token_types).view()));

    const support::temporary_folder temporary;
    for (const bool is_like : {true, false}) {
        const auto saved = kept_or(temporary) / (is_like ? "like" : "new") / "classifier";
        ht::save_pretrained(model, saved, {.like = is_like ? folders / "classifier" : ""});
        pretrained_checks::has_tensors_of(saved, folders / "classifier");
        classifier again{device, ht::read_bert_config(saved), 2};
        ht::load_pretrained(again, saved);
        CHECK(values_of(again.parameters()) == values_of(model.parameters()));
        const auto config = nlohmann::json::parse(pretrained_checks::text_of(saved / "config.json"));
        CHECK(config.contains("initializer_range") == is_like);
        CHECK(config["id2label"]["4"] == "LABEL_4");
        CHECK(config["pad_token_id"] == 0);
    }
}

TEST_CASE("bert folders: the encoder of a model of one's own is a BertModel, from folders with other heads, too") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder temporary;
    classifier expected{device, config_of("padded")};
    inputs in(expected);
    const auto encoder = values_below(expected.parameters(), "encoder.");
    for (const char* const name : {"base", "classifier", "pretraining"}) {
        CAPTURE(name);
        two_layers model{device, ht::read_bert_config(folders / name).encoder, 3};
        const auto before = values_below(model.parameters(), "before.");
        ht::load_pretrained(model.parameters(), model.bert, folders / name);
        CHECK(values_below(model.parameters(), "text.bert.") == encoder);
        CHECK(values_below(model.parameters(), "before.") == before);
        for (const bool is_like : {true, false}) {
            const auto saved = kept_or(temporary) / (is_like ? "like" : "new") / "base";
            ht::save_pretrained(model.parameters(), model.bert, saved,
                                {.like = is_like ? folders / name : "", .max_shard_bytes = is_like ? 4096u : 1000000u});
            pretrained_checks::has_tensors_of(saved, folders / "base");
        }
    }
    // A new head over a pretrained encoder: of another number of classes than the folder's.
    ht::nn::classifier_config c = ht::read_bert_config(folders / "pretraining");
    CHECK(c.num_labels == 2);
    c.num_labels = 3, c.classifier_dropout = 0.125f, c.encoder.hidden_dropout_prob = 0.25f;
    classifier model{device, c, 4};
    CHECK(message_of([&] { ht::load_pretrained(model, folders / "pretraining"); })
              .ends_with("pretraining: there is no classifier.weight; the encoder alone is loaded by "
                         "ht::load_pretrained(model.parameters(), model.encode(), path)"));
    const auto head = values_below(model.parameters(), "head.");
    ht::load_pretrained(model.parameters(), model.encode(), folders / "pretraining");
    CHECK(values_below(model.parameters(), "encoder.") == encoder);
    CHECK(values_below(model.parameters(), "head.") == head);
    ht::save_pretrained(model, temporary.path() / "head", {.like = folders / "classifier"});
    const auto config = nlohmann::json::parse(pretrained_checks::text_of(temporary.path() / "head" / "config.json"));
    CHECK(config["id2label"] == nlohmann::json{{"0", "LABEL_0"}, {"1", "LABEL_1"}, {"2", "LABEL_2"}});
    CHECK(config["label2id"] == nlohmann::json{{"LABEL_0", 0}, {"LABEL_1", 1}, {"LABEL_2", 2}});
    CHECK(config["hidden_dropout_prob"] == 0.25);
    CHECK(config["classifier_dropout"] == 0.125);
    ht::load_pretrained(model, temporary.path() / "head");
}

TEST_CASE("bert folders: names of old and the numbers of the positions") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    const auto file = folder.path() / "model.safetensors";
    classifier expected{device, config_of("padded")};
    inputs in(expected);
    const auto old = [](std::string name) {
        if (const auto at = name.find("LayerNorm."); at != std::string::npos)
            name.replace(at, std::string::npos, name.ends_with("weight") ? "LayerNorm.gamma" : "LayerNorm.beta");
        return std::vector<std::string>{name};
    };
    copy_renamed(folders / "classifier", file, old, [](std::vector<ht::tensor_source>& all) {
        all.push_back({"bert.embeddings.position_ids",
                       ht::dtype::i64,
                       {1, 12},
                       [](std::byte* to, std::size_t, std::size_t bytes) { std::fill_n(to, bytes, std::byte{0}); }});
    });
    classifier model{device, config_of("padded"), 5};
    ht::load_pretrained(model, file);
    CHECK(values_of(model.parameters()) == values_of(expected.parameters()));
    // Both at once are names that the encoder does not have.
    copy_renamed(folders / "classifier", file, [&](const std::string& name) {
        return name == "bert.embeddings.LayerNorm.weight" ? old(name) : std::vector<std::string>{name};
    });
    CHECK(message_of([&] { ht::load_pretrained(model, file); }).find("missing: bert.embeddings.LayerNorm.beta, ") !=
          std::string::npos);
    // A model that was trained without a pooler.
    copy_renamed(folders / "classifier", file, [](const std::string& name) {
        return name.find("pooler") == std::string::npos ? std::vector<std::string>{name} : std::vector<std::string>{};
    });
    CHECK(message_of([&] {
              ht::load_pretrained(model.parameters(), model.encode(), file);
          }).ends_with("is of another model: missing: bert.pooler.dense.weight, bert.pooler.dense.bias"));
    // What is in the files of a BertModel is all of it.
    copy_renamed(folders / "base", file, [](const std::string& name) {
        return name == "pooler.dense.bias" ? std::vector<std::string>{name, "extra"} : std::vector<std::string>{name};
    });
    CHECK(message_of([&] {
              ht::load_pretrained(model.parameters(), model.encode(), file);
          }).ends_with("is of another model: unexpected: extra"));
}

TEST_CASE("bert folders: numbers of a file in bfloat16, and masters that are") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    ht::nn::classifier<ht::amp_bf16> first{device, ht::read_bert_config(folders / "classifier")},
        second{device, first.config(), 6};
    ht::load_pretrained(first, folders / "classifier");
    ht::save_pretrained(first, folder.path(), {.type = ht::dtype::bf16});
    ht::load_pretrained(second, folder.path());
    const auto exact = values_of(first.parameters()), rounded = values_of(second.parameters());
    for (std::size_t i = 0; i < exact.size(); ++i) CHECK(rounded[i] == static_cast<float>(ht::bfloat16(exact[i])));
}

TEST_CASE("bert folders: what halftone does not compute is refused by the name of the key") {
    changed_folder bert(folders / "classifier");
    const auto said = [&](const char* key, const nlohmann::json& value) {
        return bert.said(key, value, [&] { ht::read_bert_config(bert.folder.path()); });
    };
    CHECK(said("hidden_act", "relu") == "hidden_act is \"relu\"; expected \"gelu\"");
    CHECK(said("hidden_act", "gelu_new") == "hidden_act is \"gelu_new\"; expected \"gelu\"");
    CHECK(said("hidden_act", "gelu_python") == "no error");
    CHECK(said("position_embedding_type", "relative_key") ==
          "position_embedding_type is \"relative_key\"; expected \"absolute\"");
    CHECK(said("position_embedding_type", "absolute") == "no error");
    CHECK(said("is_decoder", true) == "is_decoder is true; expected false");
    CHECK(said("is_encoder_decoder", true) == "is_encoder_decoder is true; expected false");
    CHECK(said("add_cross_attention", true) == "add_cross_attention is true; expected false");
    CHECK(said("pruned_heads", {{"1", {0}}}) == "pruned_heads is {\"1\":[0]}; expected {}");
    CHECK(said("quantization_config", {{"bits", 4}}).starts_with("quantization_config is there"));
    CHECK(said("model_type", "roberta") == "model_type is not \"bert\"");
    CHECK(said("model_type", nullptr) == "model_type is not \"bert\"");
    CHECK(said("vocab_size", nullptr) == "vocab_size is missing, or no integer");
    CHECK(said("layer_norm_eps", -1) == "layer_norm_eps is -1; expected a number above 0");
    CHECK(said("pad_token_id", 32) == "pad_token_id is 32; expected a token of the vocabulary");
    CHECK(said("id2label", nlohmann::json::object()) == "id2label is {}; expected names of classes");
    for (const char* const key : {"layer_norm_eps", "hidden_act", "type_vocab_size", "id2label", "pad_token_id"})
        CHECK(said(key, nullptr) == "no error");
    bert.set("pad_token_id", nullptr);
    CHECK(ht::read_bert_config(bert.folder.path()).encoder.pad_token_id == 0);
    bert.config["pad_token_id"] = nullptr;
    bert.set("id2label", nullptr);
    CHECK(!ht::read_bert_config(bert.folder.path()).encoder.pad_token_id);
    CHECK(ht::read_bert_config(bert.folder.path()).num_labels == 2);
    bert.config.erase("id2label");
    bert.set("num_labels", 7);
    CHECK(ht::read_bert_config(bert.folder.path()).num_labels == 7);
    CHECK(ht::read_model_type(folders / "base") == "bert");
}

TEST_CASE("bert folders: a folder of another model is refused, whatever its shapes") {
    ht::cpu device{{.threads = 1}};
    const auto said = [&](const std::filesystem::path& folder, const auto& change) {
        ht::nn::classifier_config c = config_of("padded");
        change(c);
        classifier model{device, c};
        const auto before = values_of(model.parameters());
        const std::string message = message_of([&] { ht::load_pretrained(model, folder); });
        CHECK((values_of(model.parameters()) == before) == (message != "no error"));
        const auto begin = message.find(" is of another model: ");
        return begin == std::string::npos ? message : message.substr(begin + 22);
    };
    const auto same = [](auto&) {};
    CHECK(said(folders / "classifier", same) == "no error");
    CHECK(said(folders / "classifier", [](auto& c) { c.encoder.layer_norm_eps = 1e-5f; }) ==
          "layer_norm_eps is 1e-12, not 1e-05");
    CHECK(said(folders / "classifier", [](auto& c) {
              c.encoder.num_attention_heads = 2, c.encoder.num_hidden_layers = 1, c.encoder.intermediate_size = 8;
          }) == "num_hidden_layers is 2, not 1; num_attention_heads is 4, not 2; intermediate_size is 24, not 8");
    CHECK(said(folders / "classifier", [](auto& c) { c.num_labels = 3; }) == "the number of labels is 5, not 3");
    changed_folder regression(folders / "classifier");
    regression.set("problem_type", "regression");
    CHECK(said(regression.folder.path(), same)
              .ends_with("problem_type is \"regression\"; expected \"single_label_classification\""));
    regression.set("problem_type", "single_label_classification");
    CHECK(said(regression.folder.path(), same) == "no error");
    classifier model{device, config_of("padded")};
    const support::temporary_folder none;
    CHECK(message_of([&] {
              ht::save_pretrained(model, none.path() / "new", {.like = regression.folder.path() / "none"});
          }) != "no error");
    CHECK(!std::filesystem::exists(none.path() / "new"));
}

}  // namespace io_bert_tests
