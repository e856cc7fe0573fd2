// SPDX-License-Identifier: MIT
/// \file
/// Packed documents through a GPT on the CPU, and the rows that data/packing.hpp makes of documents.
#include <halftone/data/data_loader.hpp>
#include <halftone/data/packing.hpp>
#include <halftone/nn/llama.hpp>
#include <halftone/observe/memory/plan.hpp>

#include "nn/packed_checks.hpp"

namespace nn_packed_tests {

namespace ht = halftone;

template <class Check>
void on_every_set_packed(const Check& check) {
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        check(device);
    });
}

TEST_CASE("packed documents: the logits of each have the bits that they have alone") {
    on_every_set_packed([](ht::cpu& device) { nn_test::check_packed_logits<ht::amp_bf16>(device); });
}

TEST_CASE("packed documents of one length: the bits that loss and gradients have for a batch of them") {
    on_every_set_packed([](ht::cpu& device) { nn_test::check_packed_as_batch<ht::amp_bf16>(device); });
}

TEST_CASE("packed documents of various lengths: loss and every gradient within rounding") {
    ht::cpu device{{.threads = 2}};
    nn_test::check_packed_gradients<ht::amp_bf16, ht::bfloat16>(device, 1);
}

TEST_CASE("packed documents: invalid offsets are refused") {
    ht::cpu device{{.threads = 1}};
    nn_test::check_packed_refusals<ht::amp_bf16>(device);
}

/// Documents with prompts.
struct few_documents {
    std::vector<std::vector<std::int32_t>> tokens;
    std::vector<ht::extent> prompts;

    ht::extent size() const { return static_cast<ht::extent>(tokens.size()); }
    ht::document operator[](ht::extent i) const {
        return {tokens[static_cast<std::size_t>(i)], prompts[static_cast<std::size_t>(i)]};
    }
};

TEST_CASE("packed rows: loss and every gradient are those of separate documents, within rounding") {
    constexpr int time = 6;
    const std::vector<int> lengths{6, 2, 7, 4, 3};
    few_documents documents;
    support::random data(8);
    std::vector<std::int32_t> ids(lengths.size() * time, 1), targets(lengths.size() * time, -100);
    for (std::size_t d = 0; d < lengths.size(); ++d) {
        const auto tokens = data.indices(lengths[d], 11);
        documents.tokens.push_back(tokens);
        documents.prompts.push_back(d == 2 ? 3 : 0);
        for (int i = 0; i + 1 < lengths[d]; ++i) {
            ids[d * time + static_cast<std::size_t>(i)] = tokens[static_cast<std::size_t>(i)];
            if (i + 1 >= documents.prompts[d])
                targets[d * time + static_cast<std::size_t>(i)] = tokens[static_cast<std::size_t>(i) + 1];
        }
    }
    const ht::packed_rows rows{documents, {.length = 10, .longest = time, .most_documents = 5}};
    REQUIRE(rows.size() == 2);  // 17 predictions
    ht::data_loader loader{rows, {.batch_size = 2}, ht::collate_packed};
    const ht::packed_batch packed = *loader.next();
    ht::cpu device{{.threads = 2}};
    const nn_test::batch separate{static_cast<int>(lengths.size()), time, ids, targets};
    nn_test::check_on<ht::amp_bf16>(device, nn_test::expected_of<ht::amp_bf16, ht::bfloat16>(separate, 1), packed, 1);
}

TEST_CASE("packed documents: the plan of a Llama, which has no positions to look at, has the bytes of the run") {
    const nn_test::pack docs({5, 1, 8, 3, 8}, 32);
    const auto program = [&docs](auto& device) {
        ht::nn::llama<ht::amp_bf16> model{device,
                                          {.vocab_size = 32,
                                           .hidden_size = 32,
                                           .intermediate_size = 48,
                                           .num_hidden_layers = 1,
                                           .max_position_embeddings = 8}};
        ht::inference eval{device};
        static_cast<void>(model.loss(eval, docs.in_a_row()));
    };
    ht::cpu device{{.threads = 2}};
    const ht::memory_plan plan = ht::plan(device, program);
    program(device);
    CHECK(plan.peak_bytes == device.memory().usage().peak());
}

}  // namespace nn_packed_tests
