// SPDX-License-Identifier: MIT
/// \file
/// GPT-2 in transformers' files (golden/gpt2, golden/gpt2.py): logits, loss and gradients of the loaded model, the way back,
/// and configurations and files of other models.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include <halftone/amp.hpp>
#include <halftone/io/gpt2.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "nn/golden_model.hpp"
#include "nn/layers.hpp"
#include "support/temporary_folder.hpp"

namespace io_gpt2_tests {

namespace ht = halftone;
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

/// What PyTorch's autocast computes: the stream between blocks is float.
using autocast_bf16 = ht::recipe<ht::amp_bf16, ht::rule<"embed", ht::with_output<ht::amp_bf16, float>>>;

template <class P>
void is_as_transformers_has_it() {
    const golden_case golden = read_cases("gpt2.txt").at(0);
    ht::cpu device{{.threads = 2}};
    ht::nn::gpt<P> model{device, ht::read_gpt2_config(golden_folder)};
    ht::load_gpt2(model, golden_folder);
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

std::string text_of(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}
template <class F>
std::string message_of(const F& f) {
    try {
        f();
    } catch (const ht::safetensors_error& e) {
        return e.what();
    }
    return "no error";
}

TEST_CASE("gpt2: the logits, loss and gradients of transformers, in float32 and, with at most twice the error, in bfloat16") {
    is_as_transformers_has_it<ht::full_fp32>();
    is_as_transformers_has_it<autocast_bf16>();
}

TEST_CASE("gpt2: the tensors of a saved folder are those that it was loaded from, in one file or several") {
    const support::temporary_folder folder;
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::amp_bf16> model{device, ht::read_gpt2_config(golden_folder / "config.json")};
    ht::load_gpt2(model, golden_folder);
    ht::save_gpt2(model, folder.path());
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
    ht::save_gpt2(model, folder.path(), ht::dtype::bf16);
    ht::nn::gpt<ht::amp_bf16> again{device, c};
    ht::load_gpt2(again, folder.path());
    const float exact = support::read_masters(model.parameters(), 4).at(5);
    CHECK(support::read_masters(again.parameters(), 4).at(5) == static_cast<float>(ht::bfloat16(exact)));
}

TEST_CASE("gpt2: files without a prefix, with constants and with the head's copy of the table are read") {
    const support::temporary_folder folder;
    const ht::tensor_files first(golden_folder);
    std::vector<std::vector<float>> values;
    std::vector<ht::tensor_source> all;
    values.reserve(first.tensors().size() + 3);
    for (const ht::tensor_info& t : first.tensors()) {
        values.emplace_back(static_cast<std::size_t>(t.bytes) / sizeof(float));
        first.read(t, values.back().data());
        all.push_back(ht::tensor_source::of<float>(t.name.substr(std::string("transformer.").size()), t.shape, values.back()));
    }
    values.emplace_back(16 * 16, 1.0f);
    all.push_back(ht::tensor_source::of<float>("h.0.attn.bias", {1, 1, 16, 16}, values.back()));
    values.emplace_back(1, -1e4f);
    all.push_back(ht::tensor_source::of<float>("h.0.attn.masked_bias", {}, values.back()));
    values.emplace_back(32 * 16, 0.5f);
    all.push_back(ht::tensor_source::of<float>("lm_head.weight", {32, 16}, values.back()));
    const auto file = folder.path() / "gpt2.safetensors";
    ht::write_safetensors(file, all);
    ht::cpu device{{.threads = 1}};
    const ht::nn::gpt_config c = ht::read_gpt2_config(golden_folder);
    ht::nn::gpt<ht::full_fp32> one{device, c}, two{device, c};
    ht::load_gpt2(one, golden_folder), ht::load_gpt2(two, file);
    for (std::size_t i = 0; i < one.parameters().entries().size(); ++i)
        CHECK(support::read_masters(one.parameters(), i) == support::read_masters(two.parameters(), i));
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
    CHECK(said_of("activation_function", "gelu_pytorch_tanh") == "no error");
    std::ofstream(file) << "[]";
    CHECK(message_of([&] { ht::read_gpt2_config(file); }).ends_with("model_type is not \"gpt2\""));
    std::ofstream(file) << "{";
    CHECK(message_of([&] { ht::read_gpt2_config(file); }).find("is not valid JSON") != std::string::npos);
    std::ofstream(file) << "{\"model_type\": \"gpt2\"}" << '\0' << 'x';
    CHECK(message_of([&] { ht::read_gpt2_config(file); }).find("is not valid JSON: a byte of 0 at") != std::string::npos);
    CHECK_THROWS_AS(ht::read_gpt2_config(folder.path() / "none.json"), ht::io_error);
}

TEST_CASE("gpt2: weights of another size are refused with their names, and the model is as it was") {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt_config c = ht::read_gpt2_config(golden_folder);
    c.layers = 3, c.context = 17;
    ht::nn::gpt<ht::full_fp32> model{device, c};
    const auto before = support::read_masters(model.parameters(), 0);
    const std::string said = message_of([&] { ht::load_gpt2(model, golden_folder); });
    CHECK(said.find("missing: transformer.h.2.ln_1.weight, transformer.h.2.ln_1.bias, transformer.h.2.attn.c_attn.weight") !=
          std::string::npos);
    CHECK(said.find("of another shape or type: transformer.wpe.weight (16, 16), which is (17, 16)") != std::string::npos);
    CHECK(support::read_masters(model.parameters(), 0) == before);
    c.layers = 1, c.context = 16;
    ht::nn::gpt<ht::full_fp32> shallow{device, c};
    CHECK(message_of([&] { ht::load_gpt2(shallow, golden_folder); }).find("unexpected: transformer.h.1.attn.c_attn.bias") !=
          std::string::npos);
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
    ht::load_gpt2(model, folder);
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
    if constexpr (std::is_same_v<P, ht::full_fp32>) ht::save_gpt2(model, folder / "written");
}

// programs/gpt2_124m.py runs this with HALFTONE_GPT2=FOLDER, which golden/gpt2.py --large FOLDER has made.
TEST_CASE("gpt2: the logits of a model of 124 million parameters" * doctest::skip()) {
    const char* const named = std::getenv("HALFTONE_GPT2");
    if (named == nullptr) {
        MESSAGE("not checked here: program.gpt2_124m makes the model");
        return;
    }
    has_logits_of<ht::full_fp32>(named);
    has_logits_of<autocast_bf16>(named);
}

}  // namespace io_gpt2_tests
