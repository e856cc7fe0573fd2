// SPDX-License-Identifier: MIT
/// \file
/// GPT-2 in transformers' files (golden/gpt2, golden/gpt2.py): logits, loss and gradients of the loaded model, the way back,
/// and configurations and files of other models.
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/io/pretrained/gpt2.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "io/pretrained_checks.hpp"
#include "nn/golden_model.hpp"
#include "nn/layers.hpp"
#include "support/temporary_folder.hpp"

namespace io_gpt2_tests {

namespace ht = halftone;
using pretrained_checks::text_of;
using namespace golden_model;

const std::filesystem::path golden_folder = std::filesystem::path(HALFTONE_TEST_DATA) / "gpt2";
constexpr int rows = 2, steps = 13;

struct batch {
    std::vector<std::int32_t> token_ids, target_ids;
    ht::const_view<std::int32_t, 2> tokens, targets;

    batch() {
        generator values;
        token_ids = values.ids(rows * steps, 32), target_ids = values.ids(rows * steps, 32);
        target_ids[3] = -100;
        tokens = {token_ids.data(), {rows, steps}}, targets = {target_ids.data(), {rows, steps}};
    }
    batch(const batch&) = delete;
};

template <class P>
void is_as_transformers_has_it() {
    const golden_case golden = read_cases("gpt2.txt").at(0);
    ht::cpu device{{.threads = 2}};
    ht::nn::gpt<P> model{device, ht::read_gpt2_config(golden_folder)};
    ht::load_pretrained(model, golden_folder);
    const batch b;
    ht::inference eval{device};
    const auto logits = model.logits(eval, b.tokens);
    CHECK(off(support::doubles(ht::to_host(device, logits).view()), golden.logits) <= allowed<P>(golden.logits_off));
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const auto loss = model.loss(tape, b);
    check_loss<P>(static_cast<double>(loss.item()), golden);
    tape.backward(loss, sink);
    check_gradients<P>(model.parameters(), sink, golden);
}

template <class F>
std::string message_of(const F& f) {
    return pretrained_checks::message_of<ht::safetensors_error>(f);
}

TEST_CASE("gpt2: the logits, loss and gradients of transformers, in float32 and, with at most twice the error, in bfloat16") {
    is_as_transformers_has_it<ht::full_fp32>();
    is_as_transformers_has_it<ht::amp_bf16>();
}

TEST_CASE("gpt2: the tensors of a saved folder are those that it was loaded from, in one file or several") {
    const support::temporary_folder folder;
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::amp_bf16> model{device, ht::read_gpt2_config(golden_folder / "config.json")};
    ht::load_pretrained(model, golden_folder);
    ht::save_pretrained(model, folder.path());
    const ht::tensor_files saved(folder.path()), first(golden_folder);
    REQUIRE(saved.tensors().size() == first.tensors().size());
    for (const ht::tensor_info& t : first.tensors()) {
        CAPTURE(t.name);
        const ht::tensor_info* const s = saved.find(t.name);
        REQUIRE(s != nullptr);
        CHECK(s->shape == t.shape);
        std::vector<std::byte> a(static_cast<std::size_t>(t.bytes)), b(static_cast<std::size_t>(s->bytes));
        first.read(t, a.data()), saved.read(*s, b.data());
        CHECK(a == b);
    }
    const ht::nn::gpt_config c = ht::read_gpt2_config(folder.path());
    CHECK(c.vocabulary == 32);
    CHECK(c.context == 16);
    CHECK(c.layers == 2);
    CHECK(c.heads == 4);
    CHECK(c.width == 16);
    // Half the bytes, and back.
    ht::save_pretrained(model, folder.path(), ht::dtype::bf16);
    ht::nn::gpt<ht::amp_bf16> again{device, c};
    ht::load_pretrained(again, folder.path());
    const float exact = support::read_masters(model.parameters(), 4).at(5);
    CHECK(support::read_masters(again.parameters(), 4).at(5) == static_cast<float>(ht::bfloat16(exact)));
}

/// The golden tensors, without their prefix, to be changed and written to a file.
struct changed_tensors {
    struct values {
        std::string name;
        std::vector<ht::extent> shape;
        std::vector<float> data;
        ht::dtype type = ht::dtype::f32;
    };
    std::vector<values> all;

    changed_tensors() {
        const ht::tensor_files first(golden_folder);
        for (const ht::tensor_info& t : first.tensors()) {
            all.push_back({t.name.substr(std::string("transformer.").size()), t.shape, std::vector<float>(t.count())});
            first.read(t, all.back().data.data());
        }
    }
    values& operator[](const std::string& name) {
        for (values& v : all) {
            if (v.name == name) return v;
        }
        all.push_back({name, {}, {}});
        return all.back();
    }
    std::vector<ht::tensor_source> sources() const {
        std::vector<ht::tensor_source> made;
        for (const values& v : all) {
            made.push_back({v.name, v.type, v.shape, [&v](std::byte* to, std::size_t first, std::size_t bytes) {
                                if (ht::bits_of(v.type) % 8 != 0) {  // packed: zeros
                                    std::fill_n(to, bytes, std::byte{0});
                                    return;
                                }
                                const std::size_t each = ht::size_of(v.type);
                                const auto* const from =
                                    reinterpret_cast<const std::byte*>(v.data.data() + first / each);
                                ht::convert(ht::dtype::f32, from, v.type, to, bytes / each);
                            }});
        }
        return made;
    }
    void write(const std::filesystem::path& file) const { ht::write_safetensors(file, sources()); }
};

/// The mask of attention that old files have: ones up to the diagonal.
std::vector<float> causal_mask(std::size_t side) {
    std::vector<float> mask(side * side);
    for (std::size_t i = 0; i < side; ++i) {
        for (std::size_t j = 0; j <= i; ++j) mask[i * side + j] = 1.0f;
    }
    return mask;
}

TEST_CASE("gpt2: files without a prefix, with constants and with the head's copy of the table are read") {
    const support::temporary_folder folder;
    const auto file = folder.path() / "gpt2.safetensors";
    ht::cpu device{{.threads = 1}};
    const ht::nn::gpt_config c = ht::read_gpt2_config(golden_folder);
    ht::nn::gpt<ht::full_fp32> one{device, c};
    ht::load_pretrained(one, golden_folder);
    changed_tensors t;
    t["h.0.attn.bias"] = {"h.0.attn.bias", {1, 1, 16, 16}, causal_mask(16)};
    t["h.0.attn.masked_bias"] = {"h.0.attn.masked_bias", {}, {-1e4f}, ht::dtype::bf16};
    t["lm_head.weight"] = {"lm_head.weight", {32, 16}, t["wte.weight"].data};
    const auto is_read = [&] {
        t.write(file);
        ht::nn::gpt<ht::full_fp32> two{device, c};
        ht::load_pretrained(two, file);
        for (std::size_t i = 0; i < one.parameters().entries().size(); ++i)
            CHECK(support::read_masters(one.parameters(), i) == support::read_masters(two.parameters(), i));
    };
    is_read();
    // transformers ties the two whichever of them the file has.
    std::erase_if(t.all, [](const auto& v) { return v.name == "wte.weight"; });
    is_read();
}

TEST_CASE("gpt2: a head that was trained apart, and a mask that is not causal, are refused") {
    const support::temporary_folder folder;
    const auto file = folder.path() / "gpt2.safetensors";
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::full_fp32> model{device, ht::read_gpt2_config(golden_folder)};
    const auto said_of = [&](const changed_tensors& t) {
        t.write(file);
        const auto before = support::read_masters(model.parameters(), 0);
        const std::string said = message_of([&] { ht::load_pretrained(model, file); });
        if (said != "no error") CHECK(support::read_masters(model.parameters(), 0) == before);
        return said;
    };
    changed_tensors head;
    head["lm_head.weight"] = {"lm_head.weight", {32, 16}, head["wte.weight"].data};
    head["lm_head.weight"].data.back() += 1.0f;
    CHECK(said_of(head).ends_with(
        "gpt2.safetensors: lm_head.weight has other values than wte.weight, so this head was trained apart; "
        "that of ht::nn::gpt is the table of tokens"));
    head["lm_head.weight"].data = head["wte.weight"].data;
    head["lm_head.weight"].type = ht::dtype::f16;  // each rounded, so others
    CHECK(said_of(head).find("lm_head.weight has other values") != std::string::npos);
    head["lm_head.weight"].type = ht::dtype::f64;
    CHECK(said_of(head) == "no error");
    head["lm_head.weight"].shape = {16, 32};
    CHECK(said_of(head).ends_with("lm_head.weight is F64 (16, 32), wte.weight F32 (32, 16)"));
    // Types whose elements are packed are named, whichever of the two has one, and both.
    head["lm_head.weight"].shape = {32, 16};
    head["lm_head.weight"].type = ht::dtype::f4;
    CHECK(said_of(head).ends_with("lm_head.weight is F4 (32, 16), wte.weight F32 (32, 16)"));
    head["wte.weight"].type = ht::dtype::f6_e2m3;
    CHECK(said_of(head).ends_with("lm_head.weight is F4 (32, 16), wte.weight F6_E2M3 (32, 16)"));
    head["wte.weight"].type = ht::dtype::f4;
    CHECK(said_of(head).ends_with("lm_head.weight is F4 (32, 16), wte.weight F4 (32, 16)"));

    changed_tensors mask;
    auto& bias = mask["h.1.attn.bias"] = {"h.1.attn.bias", {1, 1, 16, 16}, causal_mask(16), ht::dtype::f16};
    bias.data[3] = 1.0f;
    CHECK(said_of(mask).ends_with(
        "h.1.attn.bias is no causal mask, so this model's attention is another than that of ht::nn::gpt"));
    bias.data = causal_mask(16), bias.data[16] = 0.0f;
    CHECK(said_of(mask).find("h.1.attn.bias is no causal mask") != std::string::npos);
    bias.shape = {256};
    CHECK(said_of(mask).find("h.1.attn.bias is no causal mask") != std::string::npos);
    bias = {"h.1.attn.masked_bias", {}, {-1.0f}};
    CHECK(said_of(mask).ends_with(
        "h.1.attn.masked_bias is no number of -1000 or less, so this model's attention is another than that of "
        "ht::nn::gpt"));
    bias = {"h.2.attn.bias", {1, 1, 16, 16}, causal_mask(16)};  // of a layer that the model does not have
    CHECK(said_of(mask).find("unexpected: h.2.attn.bias") != std::string::npos);
    bias = {"h.0.crossattention.attn.bias", {1}, {0.0f}};
    CHECK(said_of(mask).find("unexpected: h.0.crossattention.attn.bias") != std::string::npos);
}

TEST_CASE(
    "gpt2: a saved configuration makes up nothing, and keeps what halftone does not have of the one that it is to be "
    "like") {
    const support::temporary_folder folder;
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt_config c = ht::read_gpt2_config(golden_folder);
    c.dropout = 0.25f;
    ht::nn::gpt<ht::amp_bf16> model{device, c};
    const auto saved = [&] { return nlohmann::json::parse(text_of(folder.path() / "config.json")); };
    ht::save_pretrained(model, folder.path());
    // An absent key would have transformers' default, 50256.
    for (const char* const id : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
        CHECK(saved().contains(id));
        CHECK(saved()[id].is_null());
    }
    CHECK(saved()["embd_pdrop"] == 0.25);
    CHECK(saved()["attn_pdrop"] == 0.0);

    const support::temporary_folder other;
    nlohmann::json theirs = nlohmann::json::parse(text_of(golden_folder / "config.json"));
    theirs["bos_token_id"] = 1, theirs["eos_token_id"] = {2, 3}, theirs["pad_token_id"] = 4, theirs["attn_pdrop"] = 0.1;
    theirs["embd_pdrop"] = 0.3, theirs["n_inner"] = 64, theirs["own"] = "é", theirs["architectures"] = {"GPT2Model"};
    theirs["activation_function"] = "gelu_fast";
    theirs["dtype"] = "bfloat16", theirs["torch_dtype"] = "bfloat16",
    theirs["quantization_config"] = nlohmann::json::object();
    const auto config = other.write("config.json", theirs.dump());
    other.write("generation_config.json", "{\"eos_token_id\": [2, 3]}");
    nlohmann::json expected = theirs;
    expected["architectures"] = {"GPT2LMHeadModel"};
    for (const char* const of_weights : {"dtype", "torch_dtype", "quantization_config"}) expected.erase(of_weights);
    c.dropout = 0;
    ht::nn::gpt<ht::amp_bf16> plain{device, c};
    for (const auto& like : {other.path(), config}) {
        ht::save_pretrained(plain, folder.path(), {.like = like});
        CHECK(saved() == expected);
        CHECK(text_of(folder.path() / "generation_config.json") == "{\"eos_token_id\": [2, 3]}");
    }
    // A model that was trained with dropout has its own.
    ht::save_pretrained(model, folder.path(), {.type = ht::dtype::bf16, .like = other.path()});
    expected["embd_pdrop"] = expected["resid_pdrop"] = 0.25;
    CHECK(saved() == expected);
    // In place, and from a folder that it was saved to.
    ht::save_pretrained(model, folder.path(), {.like = folder.path()});
    CHECK(saved() == expected);
    ht::load_pretrained(plain, folder.path());

    c.heads = 2;
    const ht::nn::gpt<ht::amp_bf16> of_other_size{device, c};
    const support::temporary_folder none;
    CHECK(message_of([&] {
              ht::save_pretrained(of_other_size, none.path() / "new", {.like = other.path()});
          }).ends_with("config.json is of another model: n_head is 4, not 2"));
    CHECK(!std::filesystem::exists(none.path() / "new"));
}

TEST_CASE("gpt2: a configuration of another model, or of what halftone does not compute, is refused") {
    const support::temporary_folder folder;
    const auto file = folder.path() / "config.json";
    const nlohmann::json good = nlohmann::json::parse(text_of(golden_folder / "config.json"));
    const auto said_of = [&](const char* field, const nlohmann::json& value) {
        nlohmann::json changed = good;
        changed[field] = value;
        std::ofstream(file) << changed;
        return message_of([&] { ht::read_gpt2_config(file); });
    };
    CHECK(said_of("model_type", "gpt_neo").ends_with("config.json: model_type is not \"gpt2\""));
    CHECK(said_of("model_type", 2).ends_with("config.json: model_type is not \"gpt2\""));
    CHECK(said_of("activation_function", "relu").ends_with("activation_function is \"relu\"; expected \"gelu_new\""));
    CHECK(said_of("n_inner", 65).ends_with("n_inner is 65; expected 64"));
    CHECK(said_of("layer_norm_epsilon", 1e-6).ends_with("layer_norm_epsilon is 1e-06; expected 1e-05"));
    CHECK(said_of("tie_word_embeddings", false).ends_with("tie_word_embeddings is false; expected true"));
    CHECK(said_of("scale_attn_by_inverse_layer_idx", true).ends_with("scale_attn_by_inverse_layer_idx is true; expected false"));
    CHECK(said_of("n_head", 0).ends_with("n_head is 0; expected 1 to 16777216"));
    CHECK(said_of("n_layer", "two").ends_with("n_layer is missing, or no integer"));
    CHECK(said_of("n_layer", 1e9).ends_with("n_layer is missing, or no integer"));
    CHECK(said_of("n_inner", 64) == "no error");
    // transformers has five names for gelu's approximation by a hyperbolic tangent; "gelu" is the exact one.
    for (const char* const same : {"gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh", "gelu_accurate"})
        CHECK(said_of("activation_function", same) == "no error");
    for (const char* const another : {"gelu", "gelu_python", "quick_gelu", "gelu_10"})
        CHECK(said_of("activation_function", another).ends_with("expected \"gelu_new\""));
    CHECK(said_of("add_cross_attention", true).ends_with("add_cross_attention is true; expected false"));
    std::ofstream(file) << "[]";
    CHECK(message_of([&] { ht::read_gpt2_config(file); }).ends_with("config.json: is no object"));
    std::ofstream(file) << "{";
    CHECK(message_of([&] { ht::read_gpt2_config(file); }).find("is not valid JSON") != std::string::npos);
    std::ofstream(file) << "{\"model_type\": \"gpt2\"}" << '\0' << 'x';
    CHECK(message_of([&] { ht::read_gpt2_config(file); }).find("is not valid JSON: a byte of 0 at") != std::string::npos);
    CHECK_THROWS_AS(ht::read_gpt2_config(folder.path() / "none.json"), ht::io_error);
}

TEST_CASE("gpt2: weights of another size are refused with their names, and the model is as it was") {
    const support::temporary_folder folder;
    std::filesystem::copy_file(golden_folder / "model.safetensors",
                               folder.path() / "model.safetensors");  // no config.json
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt_config c = ht::read_gpt2_config(golden_folder);
    c.layers = 3, c.context = 17;
    ht::nn::gpt<ht::full_fp32> model{device, c};
    const auto before = support::read_masters(model.parameters(), 0);
    const std::string said = message_of([&] { ht::load_pretrained(model, folder.path()); });
    CHECK(said.find("missing: transformer.h.2.ln_1.weight, transformer.h.2.ln_1.bias, transformer.h.2.attn.c_attn.weight") !=
          std::string::npos);
    CHECK(said.find("of another shape or type: transformer.wpe.weight (16, 16), which is (17, 16)") != std::string::npos);
    CHECK(support::read_masters(model.parameters(), 0) == before);
    c.layers = 1, c.context = 16;
    ht::nn::gpt<ht::full_fp32> shallow{device, c};
    CHECK(message_of([&] {
              ht::load_pretrained(shallow, folder.path());
          }).find("unexpected: transformer.h.1.attn.c_attn.bias") != std::string::npos);
}

TEST_CASE("gpt2: the config.json beside the weights is compared with the model, also where no shape tells") {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt_config c = ht::read_gpt2_config(golden_folder);
    c.heads = 2;
    ht::nn::gpt<ht::full_fp32> model{device, c};
    const auto before = support::read_masters(model.parameters(), 0);
    for (const auto& path : {golden_folder, golden_folder / "model.safetensors"}) {
        CHECK(message_of([&] {
                  ht::load_pretrained(model, path);
              }).ends_with("config.json is of another model: n_head is 4, not 2"));
        CHECK(support::read_masters(model.parameters(), 0) == before);
    }
    const support::temporary_folder folder;
    std::filesystem::copy_file(golden_folder / "model.safetensors", folder.path() / "model.safetensors");
    nlohmann::json config = nlohmann::json::parse(text_of(golden_folder / "config.json"));
    config["n_head"] = 2, config["tie_word_embeddings"] = false;
    std::ofstream(folder.path() / "config.json") << config;
    CHECK(message_of([&] {
              ht::load_pretrained(model, folder.path());
          }).ends_with("tie_word_embeddings is false; expected true"));
    config["tie_word_embeddings"] = true;
    std::ofstream(folder.path() / "config.json") << config;
    CHECK(message_of([&] { ht::load_pretrained(model, folder.path()); }) == "no error");
    c.layers = 3, c.context = 17, c.vocabulary = 33, c.width = 18;
    ht::nn::gpt<ht::full_fp32> other{device, c};
    CHECK(message_of([&] { ht::load_pretrained(other, folder.path()); })
              .ends_with("is of another model: vocab_size is 32, not 33; n_positions is 16, not 17; n_layer is 2, not "
                         "3; n_embd is 16, not 18"));
}

/// The error of a model's logits that roundings let expect: independent ones add in squares, and the sum of n products or squares has n of
/// them (Higham and Mary 2019). Relative, the norm of the difference over the norm.
template <class P>
double rounding_error(const ht::nn::gpt_config& c, double tokens) {
    const auto width = static_cast<double>(c.width), head = width / static_cast<double>(c.heads);
    // Sums: two norms, qkv, scores, mixed values, proj, the perceptron's two products; gelu and residuals have few.
    const double sums = 2 * width + width + head + tokens + width + width + 4 * width + 12;
    // Numbers rounded to `compute`: four weights, and both norms', qkv's, softmax's, attention's, proj's and the perceptron's two results.
    constexpr double narrow = std::is_same_v<P, ht::full_fp32> ? 0.0 : ht::unit_roundoff<ht::bfloat16>;
    const double rounded = 4 + 8;
    const double wide = ht::unit_roundoff<float>;
    const auto blocks = static_cast<double>(c.layers);
    // The last norm and the head; of them and of the table the results or weights are rounded.
    return std::sqrt(blocks * (sums * wide * wide + rounded * narrow * narrow) + 2 * width * wide * wide + 3 * narrow * narrow);
}

template <class P>
void has_logits_of(const std::filesystem::path& folder) {
    ht::cpu device;
    ht::nn::gpt<P> model{device, ht::read_gpt2_config(folder)};
    ht::load_pretrained(model, folder);
    generator values;
    const std::vector<std::int32_t> ids = values.ids(steps, 50257);
    ht::inference eval{device};
    const auto logits = model.logits(eval, ht::const_view<std::int32_t, 2>(ids.data(), {1, steps}));
    std::ifstream in(folder / "logits.txt");
    const doubles expected{std::istream_iterator<double>(in), {}};
    REQUIRE(expected.size() == steps * 50257);
    const double error = off(support::doubles(ht::to_host(device, logits).view()), expected);
    // transformers' own error, in float32, is as large as halftone's there.
    const double own = rounding_error<P>(model.config(), steps), theirs = rounding_error<ht::full_fp32>(model.config(), steps);
    MESSAGE("off by " << error << "; at most " << std::sqrt(own * own + theirs * theirs));
    CHECK(error <= std::sqrt(own * own + theirs * theirs));
    if constexpr (std::is_same_v<P, ht::full_fp32>) ht::save_pretrained(model, folder / "written");
}

// programs/gpt2_124m.py runs this with HALFTONE_GPT2=FOLDER, which golden/gpt2.py --large FOLDER has made.
TEST_CASE("gpt2: the logits of a model of 124 million parameters" * doctest::skip()) {
    const char* const named = std::getenv("HALFTONE_GPT2");
    if (named == nullptr) {
        MESSAGE("not checked here: program.gpt2_124m makes the model");
        return;
    }
    has_logits_of<ht::full_fp32>(named);
    has_logits_of<ht::amp_bf16>(named);
}

}  // namespace io_gpt2_tests
