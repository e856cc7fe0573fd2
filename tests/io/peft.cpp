// SPDX-License-Identifier: MIT
/// \file
/// Adapters in PEFT's folders (golden/peft_folders, golden/adapters.py): logits, loss and gradients as PEFT has them, the way back, what
/// adapter_config.json says, and what is refused.
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/io/peft.hpp>
#include <halftone/io/pretrained.hpp>

#include "io/pretrained_checks.hpp"
#include "nn/golden_model.hpp"
#include "nn/lora.hpp"
#include "support/temporary_folder.hpp"

namespace io_peft_tests {

namespace ht = halftone;
using golden_model::doubles, golden_model::off;
using pretrained_checks::message_of, pretrained_checks::text_of;
using strings = std::vector<std::string>;
using P = ht::lora<ht::full_fp32, ht::full_fp32>;

const std::filesystem::path golden = HALFTONE_TEST_DATA, folders = golden / "peft_folders";

std::filesystem::path base_folder(const std::string& base) { return base == "gpt2" ? golden / "gpt2" : golden / "llama_folders" / base; }

/// Calls f(config, model type) for a base.
template <class Policy = P, class F>
void with_base(const std::string& base, const F& f) {
    if (base == "gpt2") return f(ht::read_gpt2_config(base_folder(base)), std::type_identity<ht::nn::gpt<Policy>>());
    const ht::nn::llama_config c = ht::read_llama_config(base_folder(base));
    if (base == "qwen3") return f(c, std::type_identity<ht::nn::qwen3<Policy>>());
    f(c, std::type_identity<ht::nn::llama<Policy>>());
}
ht::adapter_options options_of(const std::filesystem::path& folder, const std::string& base) {
    if (base == "gpt2") return ht::read_peft_config(folder, ht::read_gpt2_config(base_folder(base)));
    return ht::read_peft_config(folder, ht::read_llama_config(base_folder(base)), base == "qwen3" ? ht::nn::qk_norm::rms : ht::nn::qk_norm::none);
}
ht::detail::peft_layout layout_of(const std::string& base) {
    if (base == "gpt2") return ht::detail::peft_layout_of(ht::read_gpt2_config(base_folder(base)));
    return ht::detail::peft_layout_of(ht::read_llama_config(base_folder(base)), base == "qwen3");
}

/// A model with the adapters of a folder over its base; f(device, model).
template <class F>
void with_model(const std::string& base, const ht::adapter_options& options, const F& f) {
    with_base(base, [&]<class Model>(const auto& config, std::type_identity<Model>) {
        ht::cpu device{{.threads = 1}};
        const ht::add_adapters added{device, options};
        Model model{device, config, 3};
        ht::load_pretrained(model, base_folder(base));
        f(device, model);
    });
}

struct batch {
    std::vector<std::int32_t> token_ids, target_ids;
    ht::const_view<std::int32_t, 2> tokens, targets;
    explicit batch(golden_model::generator values = {}) : token_ids(values.ids(26, 32)), target_ids(values.ids(26, 32)) {
        target_ids[3] = -100;
        tokens = {token_ids.data(), {2, 13}}, targets = {target_ids.data(), {2, 13}};
    }
    batch(const batch&) = delete;
};

struct golden_adapter {
    std::string name, base;
    double loss;
    doubles logits{};
    std::map<std::string, doubles> gradients{};
};
std::vector<golden_adapter> golden_adapters() {
    std::vector<golden_adapter> all;
    for (const support::golden_line& line : support::read_golden("adapters.txt")) {
        const auto numbers = [&](std::size_t first) {
            doubles values;
            for (std::size_t i = first; i < line.words.size(); ++i) values.push_back(line.number(i));
            return values;
        };
        if (line.kind == "case") {
            all.push_back({line.words[0], line.words[1], line.number(2)});
        } else if (line.kind == "logits") {
            all.back().logits = numbers(0);
        } else {
            all.back().gradients[line.words[0]] = numbers(1);
        }
    }
    return all;
}

template <class Model>
doubles logits_of(ht::cpu& device, const Model& model) {
    const batch b;
    ht::inference eval{device};
    return support::doubles(model.logits(eval, b.tokens).view());
}

/// The gradients of a store by PEFT's names.
std::map<std::string, doubles> gradients_of(const ht::store& s, const support::gradient_sink& sink, const ht::detail::peft_layout& layout) {
    const ht::detail::peft_file_names names(s, layout, nullptr);
    const auto options = names.options<ht::save_weights_options>();
    std::map<std::string, doubles> all;
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        const ht::store_entry& e = s.entries()[i];
        if (e.frozen) continue;
        const std::vector<float> g = sink.entry(i);
        for (const auto& piece : ht::detail::stored_pieces(e, options)) {
            doubles& of = all[piece.name];
            of.assign(g.begin() + static_cast<std::ptrdiff_t>(piece.first), g.begin() + static_cast<std::ptrdiff_t>(piece.first + piece.count));
            if (!piece.is_transposed) continue;
            const doubles rows = of;
            const auto in = static_cast<std::size_t>(piece.shape[0]), out = static_cast<std::size_t>(piece.shape[1]);
            for (std::size_t r = 0; r < out; ++r) {
                for (std::size_t c = 0; c < in; ++c) of[c * out + r] = rows[r * in + c];
            }
        }
    }
    return all;
}

/// Writes logits beside an adapter, for golden/adapters.py --compare.
void keep_logits(const std::filesystem::path& folder, const doubles& logits) {
    std::ofstream out(folder / "logits.txt");
    out.precision(9);
    for (const double x : logits) out << x << '\n';
}
std::string without_spaces(const nlohmann::json& j) { return j.dump(); }

TEST_CASE("peft: logits, loss and gradients of PEFT's folders, and the way back") {
    const support::temporary_folder temporary;
    const std::filesystem::path kept = pretrained_checks::kept_or("HALFTONE_SAVED_PEFT", temporary);
    const auto cases = golden_adapters();
    CHECK(cases.size() == 9);
    for (const golden_adapter& each : cases) {
        CAPTURE(each.name);
        const ht::adapter_options options = options_of(folders / each.name, each.base);
        with_model(each.base, options, [&](ht::cpu& device, auto& model) {
            const doubles before = logits_of(device, model);
            ht::load_peft(model, folders / each.name);
            const doubles logits = logits_of(device, model);
            CHECK(off(logits, each.logits) <= 1e-5);
            CHECK(off(before, each.logits) > 1e-2);
            const batch b;
            ht::tape tape{device};
            support::gradient_sink sink(model.parameters());
            const auto loss = model.loss(tape, b);
            CHECK(std::fabs(static_cast<double>(loss.item()) - each.loss) <= 1e-5 * each.loss);
            tape.backward(loss, sink);
            const auto gradients = gradients_of(model.parameters(), sink, layout_of(each.base));
            CHECK(gradients.size() == each.gradients.size());
            for (const auto& [name, want] : each.gradients) {
                CAPTURE(name);
                REQUIRE(gradients.count(name) == 1);
                CHECK(off(gradients.at(name), want) <= 1e-4);
            }

            // And back: the tensors of the folder, and options that choose the same adapters.
            const std::filesystem::path saved = kept / (each.name + '.' + each.base);
            ht::save_peft(model, saved);
            keep_logits(saved, logits);
            const ht::tensor_files ours(saved / "adapter_model.safetensors"), theirs(folders / each.name / "adapter_model.safetensors");
            REQUIRE(ours.tensors().size() == theirs.tensors().size());
            for (const ht::tensor_info& t : theirs.tensors()) {
                CAPTURE(t.name);
                const ht::tensor_info* const o = ours.find(t.name);
                REQUIRE(o != nullptr);
                CHECK((o->shape == t.shape && o->type == ht::dtype::f32));
                CHECK(ht::detail::have_equal_values(ours, *o, theirs, t));
            }
            const ht::adapter_options again = options_of(saved, each.base);
            CHECK((again.targets == options.targets && again.trained == options.trained));
            with_model(each.base, again, [&](ht::cpu& other_device, auto& other) {
                ht::load_peft(other, saved);
                CHECK(logits_of(other_device, other) == logits);
            });
        });
    }
}

}  // namespace io_peft_tests
