// SPDX-License-Identifier: MIT
/// \file
/// Low-rank adapters: losses and gradients against those of merged weights, what is frozen, where adapters are, and merging.
#include <cmath>

#include <halftone/io/pretrained.hpp>
#include <halftone/optim/sgd.hpp>

#include "nn/lora.hpp"
#include "support/gradient_sink.hpp"
#include "support/temporary_folder.hpp"
#include "support/values.hpp"

namespace nn_lora_tests {

namespace ht = halftone;
using namespace lora_test;
using strings = std::vector<std::string>;

template <class Model>
double loss_of(ht::cpu& device, const Model& model) {
    const batch b;
    ht::inference eval{device};
    return static_cast<double>(model.loss(eval, b).item());
}

bool is_close(double got, double want, double of) { return std::fabs(got - want) <= 1e-12 * (1 + of); }

/// Of y = x (W + s B A)ᵀ, with G the gradient of W + s B A, those of B and A are s G Aᵀ and s Bᵀ G.
template <class Model, class Config>
void has_gradients_of_merged(const Config& config, const ht::adapter_options& options) {
    ht::cpu device{{.threads = 1}};
    const ht::add_adapters added{device, options};
    Model model{device, config, 3}, merged{device, config, 3};
    fill_b(model.parameters()), fill_b(merged.parameters());
    const double before = loss_of(device, merged);
    ht::merge_adapters(merged);
    CHECK(std::fabs(loss_of(device, model) - loss_of(device, merged)) < 1e-12);
    CHECK(std::fabs(loss_of(device, model) - before) < 1e-12);
    // A model without adapters and with these weights, for the gradients of all of them.
    const ht::add_adapters none{device.memory(), nullptr};
    Model whole{device, config, 3};
    for (const ht::store_adapter& a : merged.parameters().adapters().all()) {
        const matrix w = values_of(merged.parameters(), a.weight);
        const std::size_t i = entry_at(whole.parameters(), merged.parameters().entries()[a.weight].path);
        whole.parameters().write(i, 0, reinterpret_cast<const std::byte*>(w.values.data()), w.values.size());
    }
    whole.parameters().refresh();
    const batch b;
    ht::tape tape{device};
    support::gradient_sink of_whole(whole.parameters()), of_model(model.parameters());
    tape.backward(whole.loss(tape, b), of_whole);
    tape.backward(model.loss(tape, b), of_model);
    const ht::store& s = model.parameters();
    CHECK(!s.adapters().all().empty());
    for (const ht::store_adapter& each : s.adapters().all()) {
        CAPTURE(each.path);
        const std::size_t i = entry_at(whole.parameters(), s.entries()[each.weight].path);
        const matrix g{s.entries()[each.weight].rows, s.entries()[each.weight].width, of_whole.double_entry(i)};
        const matrix a = values_of(s, each.a), bm = values_of(s, each.b);
        const matrix da{a.rows, a.columns, of_model.double_entry(each.a)},
            db{bm.rows, bm.columns, of_model.double_entry(each.b)};
        const double scale = each.scale;
        bool fits = true;
        for (ht::extent row = 0; row < each.rows; ++row) {
            for (ht::extent r = 0; r < each.rank; ++r) {
                double sum = 0;
                for (ht::extent c = 0; c < g.columns; ++c)
                    sum += g.at(each.first_row + row, c) * a.at(each.first_rank + r, c);
                fits = fits && is_close(db.at(row, r), scale * sum, std::fabs(sum));
            }
        }
        CHECK(fits);
        for (ht::extent r = 0; r < each.rank; ++r) {
            for (ht::extent c = 0; c < g.columns; ++c) {
                double sum = 0;
                for (ht::extent row = 0; row < each.rows; ++row) sum += bm.at(row, r) * g.at(each.first_row + row, c);
                fits = fits && is_close(da.at(each.first_rank + r, c), scale * sum, std::fabs(sum));
            }
        }
        CHECK(fits);
    }
}

TEST_CASE("lora: losses are those of merged weights, gradients follow from theirs") {
    using P = ht::lora<ht::full_fp64, ht::full_fp64>;
    has_gradients_of_merged<ht::nn::llama<P>>(llama_config(), {.rank = 3, .alpha = 5});
    has_gradients_of_merged<ht::nn::llama<P>>(llama_config(),
                                              {.rank = 2,
                                               .alpha = 3,
                                               .rank_stabilized = true,
                                               .targets = {"*.q", "h.1.attn.qkv.v", "*.up", "h.0.attn.proj"}});
    has_gradients_of_merged<ht::nn::llama<P>>(
        llama_config(), {.rank = 4, .patterns = {{"*.v", 1, 9.0}, {"h.1", {}, 2.0}, {"h.1.mlp.gate_up.gate", 2, {}}}});
    has_gradients_of_merged<ht::nn::gpt<P>>(gpt_config(), {.rank = 3, .alpha = 5});
    has_gradients_of_merged<ht::nn::gpt<P>>(gpt_config(), {.rank = 3, .targets = {"*.down"}});
}

TEST_CASE("lora: a model begins as its base, to the bit") {
    ht::cpu device{{.threads = 1}};
    const batch b;
    ht::inference eval{device};
    const auto logits = [&](const auto& model) { return support::doubles(model.logits(eval, b.tokens).view()); };
    ht::nn::llama<ht::pure_bf16> plain{device, llama_config(), 5};
    ht::nn::llama<ht::lora<ht::amp_bf16, ht::pure_bf16>> without{device, llama_config(), 5};
    CHECK(without.parameters().adapters().all().empty());
    CHECK(logits(without) == logits(plain));
    const ht::add_adapters added{device, {.rank = 4, .dropout = 0.5f}};
    ht::nn::llama<ht::lora<ht::amp_bf16, ht::pure_bf16>> model{device, llama_config(), 5};
    CHECK(model.parameters().adapters().all().size() == 2 * 7);
    CHECK(logits(model) == logits(plain));
    fill_b(model.parameters());
    CHECK(logits(model) != logits(plain));
}

TEST_CASE("lora: only adapters, and what is trained besides, have masters, gradients and moments") {
    ht::cpu device{{.threads = 1}};
    const ht::add_adapters added{device,
                                 {.rank = 4, .targets = {"h.0.attn.qkv.q"}, .trained = {"norm", "head.weight"}}};
    ht::nn::llama<ht::lora<ht::amp_bf16, ht::amp_bf16>> model{device, llama_config()};
    const ht::store& s = model.parameters();
    strings with_gradient, with_master;
    for (const ht::store_entry& e : s.entries()) {
        if (!e.frozen) with_gradient.push_back(e.path);
        if (e.master != ht::store::nowhere) with_master.push_back(e.path);
    }
    CHECK(with_gradient == strings{"h.0.attn.qkv.lora_A", "h.0.attn.qkv.q.lora_B", "norm.gain", "head.weight"});
    // Norms have no copies; the table of tokens is read in fp32, as the stream is one.
    for (const std::string& path : with_master) CAPTURE(path);
    std::size_t gradients = 0, moments = 0;
    for (const ht::store_group& g : s.groups()) gradients += g.gradients, moments += g.moments;
    CHECK(gradients == 64 + 64 + 64 + 512);
    CHECK(moments == gradients);
}

TEST_CASE("lora: options out of range, and paths that no layer has") {
    ht::cpu device{{.threads = 1}};
    const auto refused = [&](const ht::adapter_options& o) {
        const ht::add_adapters added{device, o};
        ht::nn::llama<ht::lora<ht::full_fp32, ht::full_fp32>> model{device, llama_config()};
    };
    CHECK_THROWS_WITH_AS(refused({.rank = 0}), "add_adapters: a rank of 0; expected at least 1", ht::argument_error);
    CHECK_THROWS_WITH_AS(refused({.patterns = {{"*", -1, {}}}}), "add_adapters: a rank of -1; expected at least 1",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(refused({.alpha = INFINITY}), "add_adapters: alpha is inf; expected a finite number",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(refused({.dropout = 1}), "add_adapters: a dropout of 1; expected at least 0 and less than 1",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(refused({.targets = {}}),
                         "add_adapters: no targets; \"*\" gives every linear layer an adapter", ht::argument_error);
    CHECK_THROWS_WITH_AS(refused({.targets = {"*.q", "*.q_proj"}}),
                         "add_adapters: the model has no linear layer at *.q_proj whose policy is an ht::lora",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(refused({.trained = {"lm_head"}}),
                         "add_adapters: the model has no parameter at lm_head, which is to be trained",
                         ht::argument_error);
    CHECK_THROWS_AS(refused({.targets = {"h.*.attn.norm"}}), ht::argument_error);
    // Layers of another policy cannot have one.
    using some = ht::recipe<ht::full_fp32, ht::rule<"h.*.attn", ht::lora<ht::full_fp32, ht::full_fp32>>>;
    const ht::add_adapters added{device, {.rank = 2}};
    ht::nn::llama<some> model{device, llama_config()};
    for (const ht::store_adapter& a : model.parameters().adapters().all())
        CHECK(a.path.find(".attn.") != std::string::npos);
    CHECK_THROWS_AS((ht::nn::llama<ht::full_fp32>{device, llama_config()}), ht::argument_error);
}

TEST_CASE("lora: dropout acts while training, on the adapters alone") {
    ht::cpu device{{.threads = 1}};
    const ht::add_adapters added{device, {.rank = 4, .dropout = 0.5f}};
    ht::nn::llama<ht::lora<ht::full_fp32, ht::full_fp32>> model{device, llama_config()};
    const batch b;
    const auto loss = [&] {
        ht::tape tape{device};
        return static_cast<double>(model.loss(tape, b).item());
    };
    CHECK(loss() == loss_of(device, model));
    fill_b(model.parameters());
    CHECK(loss() != loss_of(device, model));
    CHECK(loss_of(device, model) == loss_of(device, model));
}

TEST_CASE("lora: merging rounds once, and is not taken back") {
    ht::cpu device{{.threads = 1}};
    const ht::add_adapters added{device, {.rank = 4, .alpha = 6}};
    ht::nn::llama<ht::lora<ht::amp_bf16, ht::pure_bf16>> model{device, llama_config(), 5};
    fill_b(model.parameters());
    const ht::store& s = model.parameters();
    std::vector<matrix> want;
    for (const ht::store_adapter& each : s.adapters().all()) {
        matrix w = values_of(s, each.weight);
        const matrix a = values_of(s, each.a), b = values_of(s, each.b);
        for (ht::extent row = 0; row < each.rows; ++row) {
            for (ht::extent c = 0; c < w.columns; ++c) {
                double sum = 0;
                for (ht::extent r = 0; r < each.rank; ++r) sum += b.at(row, r) * a.at(each.first_rank + r, c);
                double& x = w.values[static_cast<std::size_t>((each.first_row + row) * w.columns + c)];
                x += each.scale * sum;
            }
        }
        want.push_back(std::move(w));
    }
    const support::temporary_folder folder;
    CHECK_THROWS_AS(ht::save_pretrained(model, folder.path() / "out"), ht::state_error);
    ht::merge_adapters(model);
    std::size_t k = 0;
    for (const ht::store_adapter& each : s.adapters().all()) {
        CAPTURE(each.path);
        const matrix got = values_of(s, each.weight);
        bool fits = true;
        for (ht::extent row = each.first_row; row < each.first_row + each.rows; ++row) {
            for (ht::extent c = 0; c < got.columns; ++c) {
                const double x = want[k].at(row, c);
                fits = fits && got.at(row, c) == static_cast<double>(ht::bfloat16(static_cast<float>(x)));
            }
        }
        CHECK(fits);
        ++k;
    }
    CHECK_THROWS_WITH_AS(ht::merge_adapters(model),
                         "merge_adapters: the adapters are a part of the weights since they were merged",
                         ht::state_error);
    CHECK_THROWS_AS(ht::save_adapters(model, folder.path() / "a.safetensors"), ht::state_error);
    // What is written now is a plain model.
    ht::save_pretrained(model, folder.path() / "out");
    const ht::add_adapters none{device.memory(), nullptr};
    ht::nn::llama<ht::pure_bf16> plain{device, llama_config()};
    ht::load_pretrained(plain, folder.path() / "out");
    const batch b;
    ht::inference eval{device};
    CHECK(support::doubles(plain.logits(eval, b.tokens).view()) ==
          support::doubles(model.logits(eval, b.tokens).view()));
    CHECK_THROWS_WITH_AS(ht::merge_adapters(plain),
                         "merge_adapters: the model has no adapters; it gets them while an ht::add_adapters exists",
                         ht::state_error);
}

TEST_CASE("lora: adapters in a file of their own, over a base that is loaded apart") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    using P = ht::lora<ht::amp_bf16, ht::pure_bf16>;
    const batch b;
    ht::inference eval{device};
    const auto logits = [&](const auto& model) { return support::doubles(model.logits(eval, b.tokens).view()); };
    {
        ht::nn::llama<ht::pure_bf16> base{device, llama_config(), 8};
        ht::save_pretrained(base, folder.path() / "base");
    }
    const ht::add_adapters added{device, {.rank = 4, .trained = {"norm"}}};
    ht::nn::llama<P> model{device, llama_config(), 1}, other{device, llama_config(), 2};
    ht::load_pretrained(model, folder.path() / "base");
    fill_b(model.parameters());
    ht::save_adapters(model, folder.path() / "adapter.safetensors");
    const ht::tensor_files files(folder.path() / "adapter.safetensors");
    CHECK(files.tensors().size() == 2 * (4 + 7) + 1);
    CHECK(files.find("h.1.mlp.gate_up.up.lora_B") != nullptr);
    {
        const ht::defer_parameters until_loaded{device};
        ht::nn::llama<P> late{device, llama_config(), 1};
        ht::load_pretrained(late, folder.path() / "base");
        ht::load_adapters(late, folder.path() / "adapter.safetensors");
        CHECK(logits(late) == logits(model));
    }
    CHECK(logits(other) != logits(model));
    ht::load_pretrained(other, folder.path() / "base");
    ht::load_adapters(other, folder.path() / "adapter.safetensors");
    CHECK(logits(other) == logits(model));
    const ht::add_adapters wider{device, {.rank = 8, .trained = {"norm"}}};
    ht::nn::llama<P> another{device, llama_config()};
    CHECK_THROWS_AS(ht::load_adapters(another, folder.path() / "adapter.safetensors"), ht::safetensors_error);
}

}  // namespace nn_lora_tests
