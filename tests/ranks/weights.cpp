// SPDX-License-Identifier: MIT
/// \file
/// Models that are divided among ranks and never whole on one: their initial values, weights of files, of which each rank reads its
/// part, the files that all ranks save together, and what is refused. What a rank has is compared, bit for bit, with a whole model.
#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/io/pretrained.hpp>
#include <halftone/io/pretrained/save_gguf.hpp>
#include <halftone/memory/kept_states.hpp>
#include <halftone/policy/recipe.hpp>
#include <halftone/ranks/check_equal.hpp>
#include <halftone/ranks/shard.hpp>
#include <halftone/ranks/threads.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "io/pretrained_checks.hpp"
#include "support/temporary_folder.hpp"

namespace ranks_weights_tests {

namespace ht = halftone;
using bytes = std::vector<std::byte>;
using pretrained_checks::message_of, pretrained_checks::text_of;

const std::filesystem::path golden = HALFTONE_TEST_DATA;

/// What a model of a policy and a folder with its weights are.
template <class P>
struct llama_of {
    using model = ht::nn::llama<P>;
    static std::filesystem::path folder() { return golden / "llama_folders" / "llama"; }
    static auto sizes() { return ht::read_llama_config(folder()); }
};
template <class P>
struct gpt2_of {
    using model = ht::nn::gpt<P>;
    static std::filesystem::path folder() { return golden / "gpt2"; }
    static auto sizes() { return ht::read_gpt2_config(folder()); }
};
template <class P>
struct bert_of {
    using model = ht::nn::classifier<P>;
    static std::filesystem::path folder() { return golden / "bert_folders" / "classifier"; }
    static auto sizes() { return ht::read_bert_config(folder()); }
};

/// The values of each parameter, of a whole model or, gathered, of one that is divided.
std::vector<bytes> values_of(const ht::store& parameters) {
    std::vector<bytes> all;
    for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
        const ht::store::entry& e = parameters.entries()[i];
        all.emplace_back(e.count * ht::detail::saved_type(parameters.groups()[e.group], e).bytes);
        ht::detail::value_reader read(parameters);
        read(i, 0, e.count, all.back().data());
    }
    return all;
}
template <class Model>
bytes logits_of(ht::cpu& device, const Model& model) {
    static constexpr std::int32_t ids[]{3, 1, 4, 1, 5, 9, 2, 6};
    ht::inference eval{device};
    const auto logits = model.logits(eval, ht::const_view<std::int32_t, 2>(ids, {2, 4}));
    const auto* const first = reinterpret_cast<const std::byte*>(logits.view().data());
    return {first, first + logits.size() * static_cast<ht::extent>(sizeof *logits.view().data())};
}

struct division {
    int ranks = 2, stage = 3;
    std::vector<std::string> units{};
    const char* frozen = nullptr;
    bool is_deferred = true;
};
/// Calls f(comm, device, model, shard) on each rank of a division.
template <class Of, class F>
void on_ranks(const division& d, const F& f) {
    ht::run_ranks(d.ranks, [&](ht::communicator& comm) {
        ht::cpu device{{.threads = 1}};
        std::optional<ht::defer_parameters> until_divided;
        if (d.is_deferred) until_divided.emplace(device);
        typename Of::model model{device, Of::sizes(), 5};
        if (d.frozen != nullptr) model.parameters().freeze(d.frozen);
        ht::shard sharded{device, model, comm, ht::zero{d.stage, d.units}, {.bucket_bytes = 4096}};
        f(comm, device, model, sharded);
    });
}
template <class F>
void each_division(const char* unit, const char* frozen, const F& f) {
    for (const int ranks : {1, 2, 4}) {
        for (const int stage : {1, 3}) {
            for (const bool has_units : {false, true}) {
                for (const char* const which : {static_cast<const char*>(nullptr), frozen}) {
                    f(division{ranks, stage, has_units ? std::vector<std::string>{unit} : std::vector<std::string>{},
                               which});
                }
            }
        }
    }
}

/// Initial values, loaded ones, and a folder that all ranks save are those of a whole model.
template <class Of>
void is_as_whole(const char* unit, const char* frozen) {
    const support::temporary_folder folder;
    each_division(unit, frozen, [&](const division& d) {
        CAPTURE(d.ranks);
        CAPTURE(d.stage);
        CAPTURE(d.units.size());
        CAPTURE(d.frozen != nullptr);
        ht::cpu device{{.threads = 1}};
        typename Of::model whole{device, Of::sizes(), 5};
        if (d.frozen != nullptr) whole.parameters().freeze(d.frozen);
        const auto initial = values_of(whole.parameters());
        const bytes initial_logits = logits_of(device, whole);
        ht::load_pretrained(whole, Of::folder());
        const auto loaded = values_of(whole.parameters());
        REQUIRE(initial != loaded);
        const bytes loaded_logits = logits_of(device, whole);
        ht::save_pretrained(whole, folder.path() / "whole", {.max_shard_bytes = 8000});
        on_ranks<Of>(d, [&](ht::communicator&, ht::cpu& own, auto& model, auto&) {
            CHECK(values_of(model.parameters()) == initial);
            CHECK(logits_of(own, model) == initial_logits);
            ht::load_pretrained(model, Of::folder());
            CHECK(values_of(model.parameters()) == loaded);
            CHECK(logits_of(own, model) == loaded_logits);
            ht::save_pretrained(model, folder.path() / "divided", {.max_shard_bytes = 8000});
        });
        for (const auto& file : std::filesystem::directory_iterator(folder.path() / "whole")) {
            CAPTURE(file.path().filename().string());
            CHECK(text_of(file.path()) == text_of(folder.path() / "divided" / file.path().filename()));
        }
    });
}

TEST_CASE("weights of ranks: a model that is divided before it has memory, what it loads and what it saves") {
    is_as_whole<llama_of<ht::amp_bf16>>("h.*", "embed*");
    is_as_whole<gpt2_of<ht::full_fp32>>("h.*", "h.0.*");
    is_as_whole<gpt2_of<ht::with_split_master<ht::amp_bf16>>>("h.*", "h.1.mlp.*");
    is_as_whole<bert_of<ht::pure_bf16>>("encoder.h.*", "encoder.embed.*");
}

/// A model of a GGUF file on ranks, and one that waits for it, have the values of a whole model that loads it; and all ranks save the
/// same file as that model.
template <class P, ht::nn::qk_norm Norm>
void is_as_whole_gguf(const char* name) {
    CAPTURE(name);
    using model_type = ht::nn::llama<P, Norm>;
    const auto path = golden / "gguf_files" / name;
    const auto sizes = ht::read_llama_config(path);
    ht::cpu device{{.threads = 1}};
    model_type whole{device, sizes, 5};
    ht::load_pretrained(whole, path);
    const auto loaded = values_of(whole.parameters());
    const bytes logits = logits_of(device, whole);
    const support::temporary_folder folder;
    const ht::save_gguf_options as{.like = path, .type = ht::ggml_type::q8_0};
    ht::save_gguf(whole, folder.path() / "whole.gguf", as);
    {
        const ht::defer_parameters until_loaded{device};
        model_type waiting{device, sizes, 5};
        ht::load_pretrained(waiting, path);
        CHECK(values_of(waiting.parameters()) == loaded);
        CHECK(logits_of(device, waiting) == logits);
    }
    for (const int ranks : {1, 2, 3, 4}) {
        CAPTURE(ranks);
        for (const int stage : {1, 3}) {
            CAPTURE(stage);
            ht::run_ranks(ranks, [&](ht::communicator& comm) {
                ht::cpu own{{.threads = 1}};
                const ht::defer_parameters until_divided{own};
                model_type model{own, sizes, 5};
                // With few bytes in a run each parameter is one; otherwise pieces begin in the middle of matrices.
                const std::size_t bytes = ranks == 2 ? 1000 : std::size_t{1} << 20;
                ht::shard sharded{own, model, comm, ht::zero{stage, {"h.*"}}, {.bucket_bytes = bytes}};
                ht::load_pretrained(model, path);
                CHECK(values_of(model.parameters()) == loaded);
                CHECK(logits_of(own, model) == logits);
                ht::save_gguf(model, folder.path() / "divided.gguf", as);
            });
            CHECK(text_of(folder.path() / "divided.gguf") == text_of(folder.path() / "whole.gguf"));
            std::filesystem::remove(folder.path() / "divided.gguf");
        }
    }
}

TEST_CASE("weights of ranks: each reads its part of a GGUF file, and all write one") {
    using enum ht::nn::qk_norm;
    for (const char* const type : {"F32", "BF16", "F16", "Q8_0", "Q4_0", "MXFP4"}) {
        const std::string end = std::string(1, '-') + type + ".gguf";
        is_as_whole_gguf<ht::amp_bf16, none>(("llama" + end).c_str());
        is_as_whole_gguf<ht::full_fp32, none>(("qwen2" + end).c_str());
        is_as_whole_gguf<ht::pure_bf16, rms>(("qwen3" + end).c_str());
    }
    is_as_whole_gguf<ht::amp_fp16, none>("llama3-Q8_0.gguf");
    is_as_whole_gguf<ht::with_split_master<ht::amp_bf16>, none>("llama3-Q4_0.gguf");
}

/// A Llama of 3.4 MB, of which a header is nothing.
template <class P>
struct larger {
    using model = ht::nn::llama<P>;
    static ht::nn::llama_config sizes() {
        return {.vocab_size = 512,
                .hidden_size = 128,
                .intermediate_size = 384,
                .num_hidden_layers = 4,
                .num_attention_heads = 4,
                .num_key_value_heads = 2,
                .max_position_embeddings = 16,
                .tie_word_embeddings = false};
    }
};

/// Bytes that this thread has read of files; 0: the system does not tell.
std::size_t bytes_read() {
    std::ifstream counts("/proc/thread-self/io");
    std::string name;
    std::size_t bytes = 0;
    return counts >> name >> bytes ? bytes : 0;
}

TEST_CASE("weights of ranks: each reads its part of the files, and has memory for its part") {
    const support::temporary_folder folder;
    using P = ht::amp_bf16;
    ht::cpu device{{.threads = 1}};
    const larger<P>::model whole{device, larger<P>::sizes(), 1};
    ht::save_pretrained(whole, folder.path(), {.type = ht::dtype::bf16});
    const std::size_t file = std::filesystem::file_size(folder.path() / "model.safetensors"),
                      masters = whole.parameters().size() * sizeof(float);
    for (const int ranks : {2, 4}) {
        for (const std::vector<std::string>& units : {std::vector<std::string>{}, std::vector<std::string>{"h.*"}}) {
            on_ranks<larger<P>>({ranks, 3, units}, [&](ht::communicator&, ht::cpu& own, auto& model, auto& sharded) {
                const auto n = static_cast<std::size_t>(ranks);
                const std::size_t before = bytes_read();
                ht::load_pretrained(model, folder.path());
                const std::size_t read = bytes_read() - before, padded = sharded.padding() * 2;
                CHECK(read <= (file + padded) / n + 32768);  // headers, config.json, and the file of counts itself
                if (before != 0) CHECK(read >= file / n - padded - 32768);
                const std::size_t most = own.memory().usage().peak(ht::memory_kind::master);
                CHECK(most <= (masters + 2 * padded) / n + 16384);     // gains that kernels read are whole
                CHECK(own.memory().usage().peak() < masters / 2 * 3);  // of masters and copies of a whole model
            });
        }
    }
}

TEST_CASE("weights of ranks: what one rank cannot read is loaded by none") {
    using Of = llama_of<ht::amp_bf16>;
    const support::temporary_folder folder;
    std::filesystem::copy(Of::folder(), folder.path());
    on_ranks<Of>({.ranks = 2, .units = {"h.*"}}, [&](ht::communicator& comm, ht::cpu&, auto& model, auto&) {
        const auto before = values_of(model.parameters());
        ht::load_weights_options options;
        options.names = [&](const std::string& path) { return comm.rank() == 1 && path == "norm.gain" ? "none" : ""; };
        options.matching = ht::name_matching::parameters;
        const std::string said = message_of(
            [&] { ht::detail::load_weights_of(model.parameters(), ht::tensor_files(folder.path()), "here", options); });
        CHECK(said == (comm.rank() == 1
                           ? "load_weights: here is of another model: missing: none"
                           : "load_weights: here is of another model: no tensor has the name of a parameter"));
        CHECK(values_of(model.parameters()) == before);
        CHECK(message_of([&] { ht::load_pretrained(model, folder.path()); }) == "no error");
    });
    // A model with bfloat16 masters: a number beyond them is in the part of one rank.
    using Narrow = larger<ht::pure_bf16>;
    ht::cpu device{{.threads = 1}};
    larger<ht::full_fp32>::model wide{device, Narrow::sizes(), 1};
    const auto& entries = wide.parameters().entries();
    const auto last = std::find_if(entries.begin(), entries.end(),
                                   [](const ht::store::entry& e) { return e.path == "h.3.mlp.down.weight"; });
    const float largest = std::numeric_limits<float>::max();
    wide.parameters().write(static_cast<std::size_t>(last - entries.begin()), last->count - 1,
                            reinterpret_cast<const std::byte*>(&largest), 1);
    ht::save_pretrained(wide, folder.path() / "wide");
    on_ranks<Narrow>({.ranks = 2, .units = {"h.*"}}, [&](ht::communicator& comm, ht::cpu&, auto& model, auto&) {
        const auto before = values_of(model.parameters());
        const std::string said = message_of([&] { ht::load_pretrained(model, folder.path() / "wide"); });
        CHECK(said.starts_with(comm.rank() == 1 ? "load_weights: /" : "load_weights: rank 1: load_weights: /"));
        CHECK(said.find("has numbers that the types of parameters do not hold: model.layers.3.mlp.down_proj.weight, "
                        "3.40282e+38") != std::string::npos);
        CHECK(values_of(model.parameters()) == before);
    });
}

/// The bytes of masters and copies, with the gaps after each.
std::vector<bytes> slabs_of(const ht::store& parameters) {
    std::vector<bytes> all;
    for (const ht::store::group& g : parameters.groups()) {
        for (const ht::buffer* const slab : {&g.master, &g.copy})
            all.emplace_back(slab->data(), slab->data() + slab->bytes());
    }
    return all;
}
template <class Of>
void is_loaded_into_a_waiting_model(const char* frozen) {
    ht::cpu device{{.threads = 1}};
    typename Of::model whole{device, Of::sizes(), 5};
    if (frozen != nullptr) whole.parameters().freeze(frozen);
    const ht::load_weights_options part{.names = [](const std::string& path) { return path == "norm.gain" ? "a" : ""; },
                                        .matching = ht::name_matching::any};
    const support::temporary_folder folder;
    const std::vector<float> gains(static_cast<std::size_t>(16), 1.5f);
    ht::write_safetensors(folder.path() / "a.safetensors", {ht::tensor_source::of<float>("a", {16}, gains)});
    const ht::defer_parameters until_loaded{device};
    typename Of::model waiting{device, Of::sizes(), 5}, refused{device, Of::sizes(), 5}, partly{device, Of::sizes(), 5};
    for (auto* const m : {&waiting, &refused, &partly}) {
        if (frozen != nullptr) m->parameters().freeze(frozen);
    }
    // A part of the weights: the others have their initial values.
    ht::load_weights(whole, folder.path() / "a.safetensors", part);
    ht::load_weights(partly, folder.path() / "a.safetensors", part);
    CHECK(slabs_of(partly.parameters()) == slabs_of(whole.parameters()));
    ht::load_pretrained(whole, Of::folder());
    ht::load_pretrained(waiting, Of::folder());
    CHECK(slabs_of(waiting.parameters()) == slabs_of(whole.parameters()));
    CHECK(logits_of(device, waiting) == logits_of(device, whole));
    CHECK(message_of([&] { ht::load_weights(refused, folder.path() / "a.safetensors"); }).find("missing") !=
          std::string::npos);
    CHECK(refused.parameters().is_waiting());
}

TEST_CASE("weights of ranks: one program's model that waits for weights has the bytes of one that did not") {
    for (const char* const frozen : {static_cast<const char*>(nullptr), "h.0.*"}) {
        is_loaded_into_a_waiting_model<llama_of<ht::amp_bf16>>(frozen);
        is_loaded_into_a_waiting_model<gpt2_of<ht::with_split_master<ht::amp_bf16>>>(frozen);
        is_loaded_into_a_waiting_model<gpt2_of<ht::full_fp32>>(frozen);
    }
}

TEST_CASE("weights of ranks: a model that waits for its division can do nothing else, and has one seed") {
    using Of = gpt2_of<ht::amp_bf16>;
    ht::cpu device{{.threads = 1}};
    std::optional<ht::defer_parameters> until_divided(device);
    Of::model model{device, Of::sizes()};
    until_divided.reset();
    const std::string waits =
        "store: its parameters wait for ht::shard or for weights, as the model was made while an ht::defer_parameters "
        "existed";
    CHECK(device.memory().usage().live(ht::memory_kind::master) == 0);
    CHECK(message_of([&] { logits_of(device, model); }) == waits);
    CHECK(message_of([&] { ht::save_weights(model, "none.safetensors"); }) == waits);
    CHECK(message_of([&] { ht::adamw optimizer{device, model}; }) == waits);
    CHECK(message_of([&] { ht::accumulator acc{model}; }) == waits);
    CHECK(message_of([&] { values_of(model.parameters()); }) == waits);
    CHECK(message_of([&] { ht::detail::kept_states{model.parameters()}; }) == waits);
    CHECK_NOTHROW(logits_of(device, Of::model{device, Of::sizes()}));
    ht::run_ranks(2, [&](ht::communicator& comm) {
        ht::cpu own{{.threads = 1}};
        const ht::defer_parameters until{own};
        Of::model other{own, Of::sizes(), static_cast<std::uint64_t>(comm.rank())};
        for (const auto& call : {+[](ht::communicator&c, Of::model&m) { ht::check_equal(c, m); },
                                 +[](ht::communicator&c, Of::model&m) { ht::broadcast_parameters(c, m); }})
            CHECK(message_of([&] { call(comm, other); }) == waits);
        CHECK(message_of([&] {
                  ht::shard sharded{own, other, comm, ht::zero3{}};
              }) ==
              "shard: the strategy, its units or its options, or the seed of a model that waits for it, on rank 1 are "
              "not "
              "those of rank 0");
    });
}

TEST_CASE("weights of ranks: a model whose division has no memory knows nothing of the shard that failed") {
    using Of = larger<ht::amp_bf16>;
    for (const bool is_deferred : {true, false}) {
        CAPTURE(is_deferred);
        ht::run_ranks(2, [&](ht::communicator& comm) {
            // Room for the whole model, but not for its pieces beside it; waiting, for neither.
            ht::cpu own{{.threads = 1, .memory_limit = is_deferred ? 400'000u : 6'500'000u}};
            std::optional<ht::defer_parameters> until_divided;
            if (is_deferred) until_divided.emplace(own);
            Of::model model{own, Of::sizes(), 1};
            CHECK_THROWS_AS((ht::shard{own, model, comm, ht::zero3{}}), ht::out_of_memory);
            CHECK(model.parameters().sharding_if_any() == nullptr);
            CHECK_THROWS_AS(ht::load_pretrained(model, golden / "none"), ht::error);
        });
    }
}

}  // namespace ranks_weights_tests
