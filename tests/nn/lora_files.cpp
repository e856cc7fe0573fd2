// SPDX-License-Identifier: MIT
/// \file
/// Adapters in files and checkpoints: what is in them, what is refused, and what a merged model is.
#include <sstream>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/io/adapters.hpp>
#include <halftone/io/checkpoint.hpp>
#include <halftone/observe/lint/lint.hpp>
#include <halftone/policy/table.hpp>

#include "support/temporary_folder.hpp"

namespace nn_lora_files_tests {

namespace ht = halftone;
using strings = std::vector<std::string>;

/// Two linear layers, of which the first one's rows are two products.
template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear_no_bias<ht::at<P, "in">> in;
    ht::nn::linear<ht::at<P, "out">> out;
    explicit network(ht::cpu& device, std::uint64_t seed = 7)
        : model{device}, in{parameters(), 8, 12, {.deviation = 0.3f}, {{"a", 4}, {"b", 8}}}, out{parameters(), 12, 4} {
        commit(*this, seed);
    }
    template <class Context>
    auto operator()(Context&& ctx) const {
        std::vector<float> x(16);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
        return out(ctx, in(ctx, ctx.constant(ht::const_view<float, 2>(x.data(), {2, 8}))));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.in, self.out); }
};
using plain = network<ht::full_fp32>;
using tuned = network<ht::lora<ht::full_fp32, ht::full_fp32>>;

template <class Model>
std::vector<float> answer(ht::cpu& device, const Model& model) {
    ht::inference eval{device};
    const auto y = model(eval);
    return {y.view().data(), y.view().data() + y.shape().size()};
}
void fill_b(ht::store& s) {
    for (const ht::store_adapter& a : s.adapters().all()) {
        const std::vector<float> values(s.entries()[a.b].count, 0.125f);
        s.write(a.b, 0, reinterpret_cast<const std::byte*>(values.data()), values.size());
    }
    s.refresh();
}
strings names_in(const std::filesystem::path& file) {
    const ht::tensor_files files(file);
    strings names;
    for (const ht::tensor_info& t : files.tensors()) names.push_back(t.name);
    std::sort(names.begin(), names.end());
    return names;
}
const strings base_names{"in.weight", "out.bias", "out.weight"},
    adapter_names{"in.a.lora_B", "in.b.lora_B", "in.lora_A", "out.lora_A", "out.lora_B"};

TEST_CASE("lora files: a matrix of an adapter that is frozen is in them, too") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    const ht::add_adapters added{device, {.rank = 2, .trained = {"out.bias"}}};
    tuned model{device, 1}, other{device, 2}, third{device, 3};
    strings all = adapter_names;
    all.insert(std::find(all.begin(), all.end(), "out.lora_A"), "out.bias");
    for (const char* frozen : {"*.lora_A", "out.bias"}) model.parameters().freeze(frozen);
    fill_b(model.parameters());
    ht::save_adapters(model, folder.path() / "a.safetensors");
    CHECK(names_in(folder.path() / "a.safetensors") == all);
    ht::save_checkpoint(folder.path(), {.step = 1}, model);
    CHECK(names_in(folder.path() / "checkpoint-1" / "model.safetensors") == all);
    ht::load_adapters(other, folder.path() / "a.safetensors");
    ht::load_newest_checkpoint(folder.path(), {}, third);
    for (const ht::store* s : {&other.parameters(), &third.parameters()}) {
        for (std::size_t i = 0; i < s->entries().size(); ++i) {
            const ht::store_entry& e = s->entries()[i];
            if (!e.is_adapter) continue;
            std::vector<float> here(e.count), there(e.count);
            ht::detail::read_values(*s, e, 0, e.count, reinterpret_cast<std::byte*>(here.data()));
            ht::detail::read_values(model.parameters(), model.parameters().entries()[i], 0, e.count,
                                    reinterpret_cast<std::byte*>(there.data()));
            CHECK(here == there);
        }
    }
}

TEST_CASE("lora files: a merged model is a plain one in files, in checkpoints and to captured steps") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    plain alone{device, 5};
    const ht::add_adapters added{device, {.rank = 2}};
    tuned model{device, 1}, merged{device, 1};
    fill_b(model.parameters()), fill_b(merged.parameters());
    ht::save_checkpoint(folder.path() / "apart", {.step = 1}, model);
    const auto captured = device.memory().capture_dependencies().now();
    ht::merge_adapters(merged);
    const char* const changed = device.memory().capture_dependencies().first_change_since(captured);
    REQUIRE(changed != nullptr);
    CHECK(changed == std::string("adapters have been merged"));
    ht::save_weights(merged, folder.path() / "merged.safetensors");
    CHECK(names_in(folder.path() / "merged.safetensors") == base_names);
    ht::load_weights(alone, folder.path() / "merged.safetensors");
    CHECK(answer(device, alone) == answer(device, merged));
    CHECK_THROWS_AS(ht::load_newest_checkpoint(folder.path() / "apart", {}, merged), ht::checkpoint_error);
    ht::save_checkpoint(folder.path() / "merged", {.step = 1}, merged);
    CHECK(names_in(folder.path() / "merged" / "checkpoint-1" / "model.safetensors") == base_names);
    tuned again{device, 9};
    CHECK_THROWS_AS(ht::load_newest_checkpoint(folder.path() / "merged", {}, again), ht::checkpoint_error);
    ht::merge_adapters(again);
    ht::load_newest_checkpoint(folder.path() / "merged", {}, again);
    CHECK(answer(device, again) == answer(device, merged));
}

TEST_CASE("lora files: adapters that are multiplied by another number are refused") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    const auto file = folder.path() / "a.safetensors";
    std::optional<tuned> model, other;
    {
        const ht::add_adapters added{device, {.rank = 2, .alpha = 4}};
        model.emplace(device);
    }
    {
        const ht::add_adapters added{device, {.rank = 2, .alpha = 4, .patterns = {{"in.b", {}, 1.0}}}};
        other.emplace(device);
    }
    ht::save_adapters(*model, file);
    ht::load_adapters(*model, file);
    const std::string differs = "that at in.b is multiplied by 2 there, by 0.5 here (alpha / rank)";
    CHECK_THROWS_WITH_AS(ht::load_adapters(*other, file),
                         ("load_adapters: " + file.string() + " has adapters of another scale: " + differs).c_str(),
                         ht::safetensors_error);
    ht::save_checkpoint(folder.path(), {.step = 1}, *model);
    try {
        ht::load_newest_checkpoint(folder.path(), {}, *other);
        FAIL("accepted");
    } catch (const ht::checkpoint_error& e) {
        CHECK(std::string(e.what()).find(differs) != std::string::npos);
    }
    ht::load_newest_checkpoint(folder.path(), {.resume_with = ht::program_arguments}, *other);
    ht::save_weights(model->parameters(), file, {.which = ht::weights_of::trained});
    ht::load_adapters(*other, file);  // what a file does not tell is not compared
}

TEST_CASE("lora files: checkpoints tell the adapters' policy") {
    ht::cpu device{{.threads = 1}};
    const support::temporary_folder folder;
    network<ht::lora<ht::amp_bf16, ht::full_fp32>> without{device};
    network<ht::lora<ht::full_fp32, ht::full_fp32>> none{device};
    ht::save_checkpoint(folder.path() / "none", {.step = 1}, without);
    ht::load_newest_checkpoint(folder.path() / "none", {}, none);  // there are no adapters
    const ht::add_adapters added{device, {.rank = 2}};
    network<ht::lora<ht::amp_bf16, ht::full_fp32>> model{device};
    tuned other{device};
    ht::save_checkpoint(folder.path(), {.step = 1}, model);
    try {
        ht::load_newest_checkpoint(folder.path(), {}, other);
        FAIL("accepted");
    } catch (const ht::checkpoint_error& e) {
        CAPTURE(e.what());
        CHECK(std::string(e.what()).find("compute is bfloat16 there, float here: in.lora, out.lora") !=
              std::string::npos);
    }
    std::ostringstream table;
    ht::print_policies<network<ht::lora<ht::amp_bf16, ht::full_fp32>>>(table);
    CAPTURE(table.str());
    CHECK(table.str().find("in    lora    bfloat16  float") != std::string::npos);
}

TEST_CASE("lora files: a pattern of ranks at which there is no adapter is refused") {
    ht::cpu device{{.threads = 1}};
    const ht::add_adapters added{device, {.rank = 2, .targets = {"in"}, .patterns = {{"in.b", 1, {}}, {"out", 4, {}}}}};
    CHECK_THROWS_WITH_AS((tuned{device}),
                         "add_adapters: the model has no adapter at out, whose rank or alpha is to differ",
                         ht::argument_error);
}

TEST_CASE("lora files: lint looks at an adapter by its own policy, and at no gradients of the base") {
    ht::cpu device{{.threads = 1}};
    struct narrow : ht::full_fp32 {
        using accumulate = ht::bfloat16;
    };
    const ht::add_adapters added{device, {.rank = 2}};
    const auto paths = [](const auto& model) {
        strings found;
        for (const ht::lint_finding& f : ht::lint(model, {.micro_batches = 4096})) found.push_back(f.path);
        std::sort(found.begin(), found.end());
        return found;
    };
    CHECK(paths(network<ht::lora<ht::full_fp32, narrow>>{device}) == strings{});
    CHECK(paths(network<ht::lora<narrow, ht::full_fp32>>{device}) == adapter_names);
}

}  // namespace nn_lora_files_tests
