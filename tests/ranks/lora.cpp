// SPDX-License-Identifier: MIT
/// \file
/// Low-rank adapters that ranks train together: data parallel, and with every parameter divided by ZeRO.
#include <filesystem>

#include <halftone/io/pretrained.hpp>
#include <halftone/number/nf4.hpp>

#include "nn/lora.hpp"
#include "ranks/rank_loop.hpp"
#include "support/gradient_sink.hpp"
#include "support/temporary_folder.hpp"
#include "support/values.hpp"

namespace ranks_lora_tests {

namespace ht = halftone;
using namespace lora_test;
using rank_loop::options, rank_loop::seen, rank_loop::on_cpu;
using tuned = ht::lora<ht::amp_bf16, ht::pure_bf16>;
using model_type = ht::nn::llama<tuned>;
using few_bits = ht::lora<ht::amp_bf16, ht::with_copy<ht::pure_bf16, ht::nf4>>;

ht::nn::llama_config config() {
    ht::nn::llama_config c = llama_config();
    c.hidden_size = 64, c.intermediate_size = 64;
    return c;
}

/// With a folder, models are never whole on a rank, and the base comes from there.
template <class Model = model_type, class Look>
std::vector<seen> train(int ranks, const options& o, const Look& look, const std::filesystem::path& base = {}) {
    return rank_loop::run(ranks, {.delivery = o.delivery}, [&](ht::communicator& host, seen& mine) {
        on_cpu machine(host, {});
        ht::cpu& device = machine.device;
        const ht::add_adapters added{device, {.rank = 4, .alpha = 8, .targets = {"*.q", "*.v", "*.mlp"}}};
        std::optional<ht::defer_parameters> until_divided;
        if (!base.empty()) until_divided.emplace(device);
        Model m{device, config(), 7};
        std::optional<ht::shard<ht::cpu, Model, ht::zero>> sharded;
        rank_loop::divide(sharded, o, device, m, machine.comm);
        if (!base.empty()) ht::load_pretrained(m, base);
        ht::adamw optimizer{device, m, {.lr = 0.01}};
        struct held {
            batch b;
            explicit held(unsigned seed) : b(seed) {}
        };
        rank_loop::train(
            machine, o, m, optimizer, mine,
            [&](int step, int micro) {
                return held(static_cast<unsigned>(31 * machine.comm.rank() + 7 * step + micro + 1));
            },
            [&](auto& tape, const held& h) { return m.loss(tape, h.b); }, [](int) {});
        ht::inference eval{device};
        const batch b(99);
        for (const double x : support::doubles(m.logits(eval, b.tokens).view()))
            mine.logits.push_back(static_cast<float>(x));
        look(machine, m);
    });
}

TEST_CASE("lora: ZeRO 0 to 3 have the bits of data parallel training") {
    options o{.stage = -1, .micro_batches = 2, .clip = 0.5f};
    const auto plain = train(2, o, [](auto&&...) {});
    for (int stage = 0; stage <= 3; ++stage) {
        for (const bool has_units : {false, true}) {
            CAPTURE(stage);
            CAPTURE(has_units);
            o.stage = stage;
            o.units = has_units ? std::vector<std::string>{"h.*"} : std::vector<std::string>{};
            rank_loop::check_same(train(2, o, [](auto&&...) {}), plain);
        }
    }
}

TEST_CASE("lora: a base in few bits, of which every rank has all, has the bits of data parallel training") {
    using model = ht::nn::llama<few_bits>;
    const support::temporary_folder folder;
    {
        ht::cpu device{{.threads = 1}};
        ht::nn::llama<ht::pure_bf16> base{device, config(), 7};
        ht::save_pretrained(base, folder.path() / "base");
    }
    options o{.stage = -1, .micro_batches = 2, .clip = 0.5f};
    const auto plain = train<model>(2, o, [](auto&&...) {});
    for (const int stage : {1, 3}) {
        CAPTURE(stage);
        o.stage = stage;
        o.units = stage == 3 ? std::vector<std::string>{"h.*"} : std::vector<std::string>{};
        rank_loop::check_same(train<model>(2, o, [](auto&&...) {}), plain);
        rank_loop::check_same(train<model>(
                                  2, o, [](auto&&...) {}, folder.path() / "base"),
                              plain);
    }
}

TEST_CASE("lora: weights in few bits are divided among ranks only if they are frozen") {
    rank_loop::run(2, {}, [&](ht::communicator& host, seen&) {
        on_cpu machine(host, {});
        ht::nn::llama<few_bits> m{machine.device, config(), 7};
        std::optional<ht::shard<ht::cpu, ht::nn::llama<few_bits>, ht::zero>> sharded;
        CHECK_THROWS_WITH_AS(
            rank_loop::divide(sharded, {.stage = 3, .units = {"h.*"}}, machine.device, m, machine.comm),
            "shard: h.0.attn.qkv.weight is in blocks of nf4, which are not trained: freeze it, or "
            "give the model adapters",
            ht::state_error);
    });
}

TEST_CASE("lora: a base that is loaded in pieces, and was never whole, has the same bits") {
    const support::temporary_folder folder;
    {
        ht::cpu device{{.threads = 1}};
        ht::nn::llama<ht::pure_bf16> base{device, config(), 7};
        ht::save_pretrained(base, folder.path() / "base");
    }
    options o{.stage = -1, .micro_batches = 2, .clip = 0.5f};
    const auto plain = train(2, o, [](auto&&...) {});
    o.stage = 3;
    o.units = {"h.*"};
    rank_loop::check_same(train(2, o, [](auto&&...) {}, folder.path() / "base"), plain);
}

TEST_CASE("lora: adapters of a divided model are saved whole, and merged in one that is whole") {
    const support::temporary_folder folder;
    const auto file = folder.path() / "adapter.safetensors";
    const auto trained = train(2, {.stage = 3, .units = {"h.*"}}, [&](auto&, auto& m) {
        CHECK_THROWS_AS(ht::merge_adapters(m), ht::state_error);
        ht::save_adapters(m, file);
    });
    ht::cpu device{{.threads = 1}};
    const ht::add_adapters added{device, {.rank = 4, .alpha = 8, .targets = {"*.q", "*.v", "*.mlp"}}};
    model_type m{device, config(), 7};
    ht::load_adapters(m, file);
    ht::inference eval{device};
    const batch b(99);
    std::vector<float> logits;
    for (const double x : support::doubles(m.logits(eval, b.tokens).view())) logits.push_back(static_cast<float>(x));
    CHECK(rank_loop::same_bits(logits, trained[0].logits));
}

}  // namespace ranks_lora_tests
