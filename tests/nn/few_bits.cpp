// SPDX-License-Identifier: MIT
/// \file
/// Bases in few bits: models whose linear layers have weights in blocks compute as models with the decoded weights do, to the bit;
/// their memory, their files, and what is refused.
#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <halftone/io/checkpoint.hpp>
#include <halftone/io/pretrained.hpp>
#include <halftone/io/pretrained/save_gguf.hpp>
#include <halftone/number/nf4.hpp>
#include <halftone/observe/lint/lint.hpp>
#include <halftone/observe/memory/plan.hpp>
#include <halftone/observe/shadow/shadow.hpp>

#include "nn/lora.hpp"
#include "support/gradient_sink.hpp"
#include "support/temporary_folder.hpp"
#include "support/values.hpp"
#include "train/plan_checks.hpp"

namespace nn_few_bits_tests {

namespace ht = halftone;
using namespace lora_test;
using plain = ht::lora<ht::amp_bf16, ht::pure_bf16>;
template <class Format>
using few = ht::lora<ht::amp_bf16, ht::with_copy<ht::pure_bf16, Format>>;

ht::nn::llama_config config() {
    ht::nn::llama_config c = llama_config();
    c.hidden_size = 64, c.intermediate_size = 128;
    return c;
}
ht::nn::gpt_config config_of_gpt() {
    ht::nn::gpt_config c = gpt_config();
    c.width = 64;
    return c;
}

/// What codes of a format stand for, as floats.
template <class Format>
std::vector<float> decoded(const std::vector<double>& values) {
    std::vector<float> x(values.begin(), values.end());
    std::vector<std::byte> codes(Format::bytes(x.size()));
    Format::encode(x.data(), x.size(), codes.data());
    Format::decode(codes.data(), x.size(), 0, x.size(), x.data());
    return x;
}
bool is_in_codes(const ht::store& s, std::size_t i) { return s.groups()[s.entries()[i].group].coding != nullptr; }

/// Gives a model the numbers that another one's codes stand for, each rounded once.
void give_decoded(const ht::store& coded, ht::store& to) {
    for (std::size_t i = 0; i < coded.entries().size(); ++i) {
        if (!is_in_codes(coded, i)) continue;
        const ht::value_traits& own = *to.groups()[to.entries()[i].group].param_type;
        const matrix w = values_of(coded, i);
        std::vector<std::byte> bytes(w.values.size() * own.bytes);
        own.from_doubles(w.values.data(), w.values.size(), bytes.data());
        to.write(i, 0, bytes.data(), w.values.size());
    }
    to.refresh();
}
std::size_t count_of_codes(const ht::store& s) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < s.entries().size(); ++i) n += is_in_codes(s, i) ? 1 : 0;
    return n;
}

std::vector<double> as_doubles(const std::vector<float>& x) { return {x.begin(), x.end()}; }

template <class Format, template <class> class Model, class Config>
void computes_as_decoded(const Config& sizes, std::size_t weights) {
    CAPTURE(std::string(Format::name));
    ht::cpu device{{.threads = 2}};
    const ht::add_adapters added{device, {.rank = 4, .alpha = 6}};
    Model<few<Format>> coded{device, sizes, 5};
    Model<plain> whole{device, sizes, 5};
    ht::store &of_coded = coded.parameters(), &of_whole = whole.parameters();
    CHECK(count_of_codes(of_coded) == weights);
    for (std::size_t i = 0; i < of_coded.entries().size(); ++i) {
        CAPTURE(of_coded.entries()[i].path);
        const std::vector<double> before = values_of(of_whole, i).values;
        CHECK(values_of(of_coded, i).values ==
              (is_in_codes(of_coded, i) ? as_doubles(decoded<Format>(before)) : before));
    }
    give_decoded(of_coded, of_whole);
    fill_b(of_coded), fill_b(of_whole);
    const batch b;
    ht::inference eval{device};
    CHECK(support::doubles(coded.logits(eval, b.tokens).view()) ==
          support::doubles(whole.logits(eval, b.tokens).view()));
    ht::tape tape{device};
    support::gradient_sink by_codes(of_coded), by_numbers(of_whole);
    tape.backward(coded.loss(tape, b), by_codes);
    tape.backward(whole.loss(tape, b), by_numbers);
    for (const ht::store_adapter& a : of_coded.adapters().all()) {
        CHECK(by_codes.entry(a.a) == by_numbers.entry(a.a));
        CHECK(by_codes.entry(a.b) == by_numbers.entry(a.b));
    }
}

template <class P>
using llama = ht::nn::llama<P>;
template <class P>
using gpt = ht::nn::gpt<P>;

TEST_CASE("few bits: losses and gradients are those of the decoded weights, to the bit") {
    computes_as_decoded<ht::q8_0, llama>(config(), 2 * 4);
    computes_as_decoded<ht::nf4, llama>(config(), 2 * 4);
    computes_as_decoded<ht::nf4, gpt>(config_of_gpt(), 2 * 4);
}

TEST_CASE("few bits: a recipe chooses the layers whose weights are in codes") {
    using P = ht::recipe<plain, ht::rule<"h.*.mlp", few<ht::nf4>>, ht::rule<"h.1.attn.proj", few<ht::q8_0>>>;
    ht::cpu device{{.threads = 1}};
    const ht::add_adapters added{device, {.rank = 2}};
    const ht::nn::llama<P> model{device, config(), 1};
    for (const ht::store_entry& e : model.parameters().entries()) {
        CAPTURE(e.path);
        const auto* const coding = model.parameters().groups()[e.group].coding;
        const bool is_weight = e.path.ends_with(".weight") && e.rows != 0;
        const std::string expected = !is_weight                                  ? ""
                                     : e.path.find(".mlp.") != std::string::npos ? "nf4"
                                     : e.path.find("h.1.attn.proj") == 0         ? "q8_0"
                                                                                 : "";
        CHECK((coding == nullptr ? "" : coding->name) == expected);
    }
}

TEST_CASE("few bits: plans have the bytes of the run, and weights those of their codes") {
    ht::cpu device{{.threads = 1}};
    const auto program = [](auto& on, int count) {
        const ht::add_adapters added{on, {.rank = 4}};
        ht::nn::llama<few<ht::nf4>> model{on, config(), 4};
        ht::adamw optimizer{on, model, {.lr = 0.01}};
        ht::accumulator acc{model, ht::unscaled};
        ht::tape tape{on};
        for (int step = 0; step < count; ++step) {
            const batch b;
            tape.backward(model.loss(tape, b), acc);
            auto gradients = acc.take();
            optimizer.step(gradients);
        }
    };
    plan_checks::expect_exact("few bits", device, 4, program);
    const ht::memory_plan plan = ht::plan(device, [&](auto& twin) { program(twin, 2); });
    std::size_t codes = 0, numbers = 0;
    for (const ht::planned_parameter& p : plan.parameters) {
        const bool is_linear = p.path.ends_with("qkv.weight") || p.path.ends_with("proj.weight") ||
                               p.path.ends_with("gate_up.weight") || p.path.ends_with("down.weight");
        if (!is_linear) continue;
        CAPTURE(p.path);
        CHECK(p.of(ht::memory_kind::master) == 0);
        codes += p.of(ht::memory_kind::copy);
    }
    const std::size_t w = 64;
    numbers = 2 * (w * 2 * w + w * w + 2 * w * 128 + 128 * w);
    CHECK(codes != 0);
    CHECK(static_cast<double>(codes) <= 0.27 * 2 * static_cast<double>(numbers));
}

/// The bytes of a base, and of its linear layers alone, where nothing is trained but adapters.
struct base_bytes {
    double all = 0, linear = 0;
};
template <class P>
base_bytes bytes_of_base(const ht::nn::llama_config& sizes) {
    ht::cpu device{{.threads = 1}};
    const ht::memory_plan plan = ht::plan(device, [&](auto& on) {
        const ht::add_adapters added{on, {.rank = 1}};
        const ht::nn::llama<P> model{on, sizes};
    });
    base_bytes sum;
    for (const ht::planned_parameter& p : plan.parameters) {
        if (p.path.find("lora_") != std::string::npos) continue;
        const auto bytes = static_cast<double>(p.of(ht::memory_kind::master) + p.of(ht::memory_kind::copy));
        sum.all += bytes;
        const bool is_linear = p.path.starts_with("h.") && p.path.ends_with(".weight");
        if (is_linear) sum.linear += bytes;
    }
    return sum;
}

TEST_CASE("few bits: bases of Qwen2's shapes take the share of bf16's bytes that the documents tell") {
    ht::nn::llama_config c{.vocab_size = 151936,
                           .hidden_size = 896,
                           .intermediate_size = 4864,
                           .num_hidden_layers = 24,
                           .num_attention_heads = 14,
                           .num_key_value_heads = 2,
                           .tie_word_embeddings = true,
                           .attention_bias = true};
    const auto expect = [&](double nf4, double q8_0) {
        const base_bytes numbers = bytes_of_base<plain>(c), of_nf4 = bytes_of_base<few<ht::nf4>>(c),
                         of_q8_0 = bytes_of_base<few<ht::q8_0>>(c);
        CHECK(of_nf4.linear / numbers.linear <= 0.2585);
        CHECK(of_q8_0.linear / numbers.linear <= 0.5315);
        CHECK(of_nf4.all / numbers.all <= nf4);
        CHECK(of_q8_0.all / numbers.all <= q8_0);
    };
    expect(0.465, 0.665);
    c.vocab_size = 152064, c.hidden_size = 3584, c.intermediate_size = 18944, c.num_hidden_layers = 28;
    c.num_attention_heads = 28, c.num_key_value_heads = 4, c.tie_word_embeddings = false;
    expect(0.365, 0.605);
}

TEST_CASE("few bits: weights of files become codes, however they are read") {
    ht::cpu device{{.threads = 2}};
    const support::temporary_folder folder;
    const auto file = folder.path() / "model.safetensors", exact = folder.path() / "exact.safetensors";
    const ht::nn::llama<ht::full_fp32> source{device, config(), 9};
    ht::save_weights(source, file);
    const auto loads = [&](const std::filesystem::path& from, bool one_at_a_time, bool waits) {
        std::optional<ht::defer_parameters> until;
        if (waits) until.emplace(device);
        ht::nn::llama<few<ht::nf4>> model{device, config(), 5};
        model.parameters().freeze("*");
        ht::load_weights(model, from, {.one_at_a_time = one_at_a_time});
        for (std::size_t i = 0; i < source.parameters().entries().size(); ++i) {
            if (!is_in_codes(model.parameters(), i)) continue;
            CAPTURE(source.parameters().entries()[i].path);
            CHECK(values_of(model.parameters(), i).values ==
                  as_doubles(decoded<ht::nf4>(values_of(source.parameters(), i).values)));
        }
        return model.parameters().entries().size();
    };
    for (const bool one : {false, true})
        for (const bool waits : {false, true}) loads(file, one, waits);
    // Numbers that codes do not hold are refused, and the model stays as it was.
    const auto bad = folder.path() / "bad.safetensors";
    for (const float x : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 1e7f}) {
        ht::nn::llama<ht::full_fp32> wrong{device, config(), 9};
        const std::size_t i = entry_at(wrong.parameters(), "h.1.mlp.down.weight");
        wrong.parameters().write(i, 70, reinterpret_cast<const std::byte*>(&x), 1);
        ht::save_weights(wrong, bad);
        ht::nn::llama<few<ht::q8_0>> whole{device, config(), 5};
        whole.parameters().freeze("*");
        const std::vector<double> before = values_of(whole.parameters(), 0).values;
        for (const bool one_at_a_time : {false, true})
            CHECK_THROWS_AS(ht::load_weights(whole, bad, {.one_at_a_time = one_at_a_time}), ht::safetensors_error);
        CHECK(values_of(whole.parameters(), 0).values == before);
    }
    // Saved again they are the numbers that the codes stand for.
    ht::nn::llama<few<ht::nf4>> model{device, config(), 5};
    ht::load_weights(model, file);
    model.parameters().freeze("*");
    ht::save_weights(model, exact, {.type = ht::dtype::f32});
    ht::nn::llama<ht::full_fp32> back{device, config(), 1};
    ht::load_weights(back, exact);
    for (std::size_t i = 0; i < back.parameters().entries().size(); ++i)
        CHECK(values_of(back.parameters(), i).values == values_of(model.parameters(), i).values);
    // Rows of queries and keys, in the other order of a GGUF file, are read one at a time.
    const auto gguf = folder.path() / "model.gguf";
    ht::save_gguf(model, gguf, {.type = ht::ggml_type::f32});
    ht::nn::llama<ht::full_fp32> from_gguf{device, config(), 2};
    ht::load_pretrained(from_gguf, gguf);
    for (std::size_t i = 0; i < back.parameters().entries().size(); ++i)
        CHECK(values_of(from_gguf.parameters(), i).values == values_of(model.parameters(), i).values);
}

TEST_CASE("few bits: a checkpoint without adapters has the codes themselves") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    using model_type = ht::nn::llama<few<ht::nf4>>;
    model_type saved{device, config(), 5}, other{device, config(), 6};
    for (model_type* m : {&saved, &other}) m->parameters().freeze("h.*.attn*"), m->parameters().freeze("h.*.mlp*");
    ht::adamw of_saved{device, saved, {.lr = 0.01}}, of_other{device, other, {.lr = 0.01}};
    ht::accumulator acc{saved, ht::unscaled};
    ht::tape tape{device};
    const batch b;
    tape.backward(saved.loss(tape, b), acc);
    auto gradients = acc.take();
    of_saved.step(gradients);
    ht::save_checkpoint(folder.path(), {.step = 1}, saved, of_saved);
    REQUIRE(ht::load_newest_checkpoint(folder.path(), {}, other, of_other));
    for (std::size_t i = 0; i < saved.parameters().entries().size(); ++i)
        CHECK(values_of(saved.parameters(), i).values == values_of(other.parameters(), i).values);
}

TEST_CASE("few bits: weights that folders have in pieces become codes of the whole") {
    ht::cpu device{{.threads = 2}};
    const support::temporary_folder folder;
    const ht::nn::llama<ht::pure_bf16> source{device, config(), 9};
    ht::save_pretrained(source, folder.path() / "llama");
    ht::nn::llama<few<ht::nf4>> model{device, config(), 5};
    model.parameters().freeze("*");
    ht::load_pretrained(model, folder.path() / "llama");
    for (std::size_t i = 0; i < source.parameters().entries().size(); ++i) {
        const std::vector<double> there = values_of(source.parameters(), i).values;
        CHECK(values_of(model.parameters(), i).values ==
              (is_in_codes(model.parameters(), i) ? as_doubles(decoded<ht::nf4>(there)) : there));
    }
}

TEST_CASE("few bits: a step differs from fp32 of the decoded weights only by rounding") {
    ht::cpu device{{.threads = 1}};
    const ht::add_adapters added{device, {.rank = 4, .alpha = 6}};
    using model_type = ht::nn::llama<few<ht::nf4>>;
    model_type model{device, config(), 1};
    fill_b(model.parameters());
    ht::shadow_twin<model_type> twin{device, config()};
    const batch b;
    const auto report = ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) { return m.loss(tape, b); });
    std::ostringstream table;
    report.print(table);
    CAPTURE(table.str());
    CHECK(report.first() == nullptr);
    CHECK(ht::lint(model, {.rows = 8192, .micro_batches = 512}).empty());
}

TEST_CASE("few bits: what cannot be is refused by name") {
    ht::cpu device{{.threads = 1}};
    ht::nn::llama<few<ht::nf4>> trained{device, config(), 5};
    CHECK_THROWS_WITH_AS(ht::accumulator(trained, ht::unscaled),
                         "accumulator: h.0.attn.qkv.weight is in blocks of nf4, which are not trained: freeze it, or "
                         "give the model adapters",
                         ht::state_error);
    CHECK_THROWS_WITH_AS(
        (ht::nn::llama<few<ht::nf4>>{device, llama_config(), 5}),
        "store: h.0.attn.qkv.weight has rows of 16 numbers, which are no whole blocks of nf4: 64; give its layer a "
        "policy without the role `copy`",
        ht::shape_error);
    const ht::add_adapters added{device, {.rank = 2}};
    ht::nn::llama<few<ht::q8_0>> model{device, config(), 5};
    CHECK_THROWS_WITH_AS(ht::merge_adapters(model),
                         "merge_adapters: h.0.attn.qkv.weight is in blocks of q8_0, which would round the sum; save "
                         "the adapters, and merge "
                         "them in a model whose base has 16 bits or more",
                         ht::state_error);
}

}  // namespace nn_few_bits_tests
