// SPDX-License-Identifier: MIT
/// \file
/// A GPT whose parameters are divided among ranks: all strategies give the bits of data parallel training, with
/// accumulation, clipping, checkpoints, frozen embeddings and 8-bit moments.
#include "ranks/shard_gpt.hpp"

namespace ranks_shard_gpt_tests {

using namespace shard_gpt;

TEST_CASE("shard: ZeRO 0 to 3 give a GPT the bits of data parallel training") {
    check_strategies<ht::amp_bf16>(2, {.clip = 0.5f});
    check_strategies<ht::amp_bf16>(4, {.micro_batches = 2, .clip = 0.5f, .checkpointing = 2});
    check_strategies<ht::amp_bf16>(2, {.micro_batches = 4, .clip = 0.5f});
}

TEST_CASE("shard: 3 ranks, 8-bit moments, frozen embeddings") {
    check_strategies<ht::amp_bf16>(3, {.eight_bit = true});
    check_strategies<ht::amp_bf16>(2, {.eight_bit = true, .frozen = "embed"});
}

TEST_CASE("shard: collectives that deliver late change nothing") {
    options o{.stage = 3, .units = {"h.*"}, .clip = 0.5f, .checkpointing = 2};
    const auto prompt = train<ht::amp_bf16>(4, o);
    for (const ht::delivery d : {ht::delivery::late, ht::delivery::halves, ht::delivery::shuffled}) {
        o.delivery = d;
        const auto late = train<ht::amp_bf16>(4, o);
        for (std::size_t r = 0; r < late.size(); ++r) CHECK(same_bits(late[r].logits, prompt[r].logits));
    }
}

TEST_CASE("shard: sums of units beside the backward pass have the bits of those in take()") {
    for (int stage = 1; stage <= 3; ++stage) {
        options o{.stage = stage, .units = {"h.*"}, .micro_batches = 2, .clip = 0.5f};
        const auto beside = train<ht::amp_bf16>(3, o);
        o.told = false;
        const auto after = train<ht::amp_bf16>(3, o);
        for (std::size_t r = 0; r < after.size(); ++r) CHECK(same_bits(beside[r].logits, after[r].logits));
    }
}

TEST_CASE("shard: with zero3 a unit's parameters are read only while it is called, and gathered ahead") {
    ht::run_ranks(2, [](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        model<ht::amp_bf16> m{device, config_of({}), 7};
        ht::shard sharded{device, m, comm, ht::zero3{"h.*"}};
        CHECK(sharded.units() == std::vector<std::string>{"the rest", "h.0", "h.1", "h.2"});
        std::string path, sentence;
        ht::nn::gpt<ht::amp_bf16>::visit(m, [&](auto& embed, auto& h, auto&, auto&) {
            CHECK_NOTHROW(embed.tokens.values());
            h.each([&](const auto& block) {
                try {
                    block.attn_norm.gain.values();
                } catch (const ht::state_error& e) {
                    sentence = e.what();
                }
                CHECK(sentence.find("read outside of its unit h.") != std::string::npos);
            });
        });
        ht::accumulator acc{sharded, ht::unscaled};
        ht::tape tape{device};
        const rows r(comm.rank(), 0, 0);
        ht::memory_usage& usage = device.memory().usage();
        const std::size_t kept = usage.live(ht::memory_kind::gradient);
        usage.reset_peaks();
        tape.backward(m.loss(tape, r.batch()) / sharded, acc);
        // Forward: three units, two of them ahead; backward: the last two are there, and the first is gathered again, ahead.
        CHECK(sharded.counts().gathers == 4);
        CHECK(sharded.counts().ahead == 3);
        std::size_t rest = 0, unit = 0;
        for (const ht::store_run& run : sharded.runs()) {
            const std::size_t bytes = run.kind == ht::store_run::content::trained
                                          ? run.count * sharded.parameters().groups()[run.group].accumulate_bytes
                                          : 0;
            if (run.unit == 0) rest += bytes;
            if (run.unit == 1) unit += bytes;
        }
        // Of all gradients there are only the rest's, and those of a unit, and of one whose sums are on their way.
        CHECK(usage.peak(ht::memory_kind::gradient) <= kept + rest + 2 * unit);
        CHECK(usage.peak(ht::memory_kind::gradient) >= kept + rest + unit);
        const auto grads = acc.take();
        CHECK(usage.live(ht::memory_kind::gradient) == kept);
    });
}

TEST_CASE("shard: with zero3, four ranks have a quarter of masters, copies, gradients and moments, to the byte") {
    ht::run_ranks(4, [](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        model<ht::amp_bf16> m{device, config_of({}), 7};
        const ht::store& parameters = m.parameters();
        struct sizes {
            std::size_t masters = 0, copies = 0, gradients = 0;
        };
        std::vector<sizes> expected(parameters.groups().size());
        std::size_t gathered[4] = {};  // by unit
        for (std::size_t g = 0; g < expected.size(); ++g) {
            const bool has_copy = parameters.groups()[g].copy_bytes != 0;
            for (std::size_t unit = 0; unit < 4; ++unit) {
                std::size_t elements = 0;
                for (const ht::store_entry& e : parameters.entries()) {
                    const std::size_t of = e.path.starts_with("h.") ? static_cast<std::size_t>(e.path[2] - '0') + 1 : 0;
                    if (e.group == g && of == unit) elements += (e.count + 255) / 256 * 256;
                }
                const std::size_t all = (elements + 1023) / 1024 * 1024, piece = all / 4;
                expected[g].masters += 4 * (unit == 0 && !has_copy ? all : piece);
                expected[g].copies += !has_copy ? 0 : 2 * (unit == 0 ? all : piece);
                expected[g].gradients += 4 * piece;
                gathered[unit] += ht::round_up((has_copy ? 2 : 4) * all, ht::block_alignment);
            }
        }
        ht::shard sharded{device, m, comm, ht::zero3{"h.*"}};
        const ht::memory_usage& usage = device.memory().usage();
        const std::size_t sums = usage.live(ht::memory_kind::gradient);
        ht::accumulator acc{sharded, ht::unscaled};
        ht::adamw optimizer{device, sharded};
        sizes all;
        for (const sizes& each : expected) {
            all.masters += ht::round_up(each.masters, ht::block_alignment);
            all.copies += ht::round_up(each.copies, ht::block_alignment);
            all.gradients += ht::round_up(each.gradients, ht::block_alignment);
        }
        CHECK(sharded.gathered_bytes() == std::max(gathered[1], gathered[3]) + gathered[2]);
        CHECK(usage.live(ht::memory_kind::master) == all.masters);
        CHECK(usage.live(ht::memory_kind::copy) == all.copies + sharded.gathered_bytes());
        CHECK(usage.live(ht::memory_kind::gradient) == sums + all.gradients + ht::block_alignment);  // and the window's record
        CHECK(usage.live(ht::memory_kind::moment) == 2 * all.gradients);
    });
}

TEST_CASE("shard: one rank gives the bits of a program without ranks") {
    for (int stage = 0; stage <= 3; ++stage) {
        CAPTURE(stage);
        options o{.stage = -1};
        const auto alone = train<ht::amp_bf16>(1, o);
        o.stage = stage, o.units = {"h.*"};
        const auto got = train<ht::amp_bf16>(1, o);
        CHECK(same_bits(got[0].losses, alone[0].losses));
        CHECK(same_bits(got[0].logits, alone[0].logits));
    }
}

}  // namespace ranks_shard_gpt_tests
