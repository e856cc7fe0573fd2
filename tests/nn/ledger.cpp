// SPDX-License-Identifier: MIT
/// \file
/// The precision ledger of a GPT: what its types say, what its operations were called with, and what the kernels of a
/// device that only takes notes are given, forward and backward, are the same.
#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/ledger.hpp>
#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/scale/accumulator.hpp>

namespace {

namespace ht = halftone;

/// A CPU whose kernels compute nothing and note the types of what they are given.
struct recorder : ht::cpu {
    recorder() : ht::cpu(ht::cpu_options{.threads = 1}) {}
    std::set<std::string> notes;

    /// Operands are noted in alphabetical order: a product has them transposed as it likes.
    template <class In, class Out, class... Stored>
    void note(const char* kernel) {
        std::vector<std::string> stored{ht::number_traits<std::remove_const_t<Stored>>::name...};
        std::sort(stored.begin(), stored.end());
        std::string text = std::string(kernel) + " in " + ht::number_traits<In>::name + " of";
        for (const std::string& s : stored) text += " " + s;
        notes.insert(text + " to " + ht::number_traits<std::remove_const_t<Out>>::name);
    }
};

/// The type of a product's result: the last that its epilogue gives, behind what it keeps for the backward pass.
template <class Epilogue>
struct result_of;
template <class Operands, class... Es, class... Ts>
struct result_of<ht::matmul_epilogue<Operands, ht::pack<ht::matmul_result<Es, Ts>...>>> {
    using type = std::tuple_element_t<sizeof...(Ts) - 1, std::tuple<Ts...>>;
};

}  // namespace

namespace halftone::inline HALFTONE_ABI {

namespace kernel {

template <>
struct matmul<recorder> {
    template <class Compute, class A, class B, class Epilogue>
    static void run(recorder& device, const view<A, 2>&, const view<B, 2>&, const Epilogue&) {
        device.note<Compute, typename result_of<Epilogue>::type, A, B>("product");
    }
};

template <>
struct column_sum<recorder> {
    template <class... Arguments>
    static void run(recorder&, const Arguments&...) {}
};
template <>
struct dropout<recorder> : column_sum<recorder> {};
template <>
struct map<recorder> {
    template <class... Arguments>
    static void run(recorder&, const Arguments&...) {}
    template <class... Arguments>
    static void backward(recorder&, const Arguments&...) {}
};
template <>
struct layer_norm<recorder> {
    template <class X, class W, class Y>
    static void forward(recorder& device, const layer_norm_forward<X, W, Y>&) {
        device.note<float, Y, X>("layer_norm forward");
    }
    template <class X, class W, class Y, class G>
    static void backward(recorder& device, const layer_norm_backward<X, W, Y, G>&) {
        device.note<float, X, X, Y>("layer_norm input gradient");
    }
};
template <>
struct embedding<recorder> {
    template <class T, class Y>
    static void forward(recorder& device, const embedding_forward<T, Y>&) {
        device.note<T, Y, T>("embedding forward");
    }
    template <class Y, class G>
    static void backward(recorder& device, const embedding_backward<Y, G>&) {
        device.note<Y, G, Y>("embedding weight gradient");
    }
};
template <>
struct attention<recorder> {
    static const char* why_not_flash(const detail::attention_extents&) { return nullptr; }
    template <class Compute, class T>
    static void forward(recorder& device, const attention_forward<T>&) {
        device.note<Compute, T, T>("attention forward");
    }
    template <class Compute, class T>
    static void backward(recorder& device, const attention_backward<T>&) {
        device.note<Compute, T, T, T>("attention input gradient");  // of q, k and v together, and of the gradient
    }
};
template <>
struct attention_math<recorder> {
    template <class Compute, class T>
    static void forward(recorder&, const attention_forward<T>&) {}
    template <class Compute, class T>
    static void backward(recorder&, const attention_backward<T>&) {}
};
template <>
struct cross_entropy<recorder> {
    template <class... Arguments>
    static void check_targets(recorder&, const Arguments&...) {}
    template <class X>
    static void forward_rows(recorder& device, const cross_entropy_forward<X>&) {
        device.note<float, float, X>("logits");
    }
    template <class X, class D>
    static void backward(recorder& device, const cross_entropy_backward<X, D>&) {
        device.note<float, float, X>("logits");
    }
    template <class... Arguments>
    static void mean(recorder&, const Arguments&...) {}
};

}  // namespace kernel

}  // namespace halftone::inline HALFTONE_ABI

namespace {

using ht::amp_bf16, ht::rule;
template <class P>
using gpt = ht::nn::gpt<P>;
// In one block everything is fp32 but the stream; norms give fp32, one perceptron's weights have gradients out of fp32
// products, and the logits are fp32.
using mixed =
    ht::recipe<amp_bf16, rule<"*.norm", ht::full_fp32>, rule<"h.0", ht::full_fp32>,
               rule<"h.1.mlp", ht::with_weight_grad<amp_bf16, float>>, rule<"head", ht::with_output<amp_bf16, float>>>;

// A norm reads bf16 as fp32 forward, and twice backward; logits are read once for the loss and once for its gradient.
static_assert(ht::casts<gpt<amp_bf16>> == 3 * 3 + 2);
static_assert(ht::casts_at<gpt<amp_bf16>, "*.norm"> == 9 && ht::casts_at<gpt<amp_bf16>, "h.*.mlp.norm"> == 3 &&
              ht::casts_at<gpt<amp_bf16>, "head"> == 2);
static_assert(ht::casts_at<gpt<amp_bf16>, "h.*.attn"> == 3 && ht::casts_at<gpt<amp_bf16>, "embed"> == 0);
static_assert(ht::casts<gpt<ht::amp_fp16>> == 11 && ht::casts<gpt<ht::full_fp32>> == 0 &&
              ht::casts<gpt<ht::tf32>> == 0);
static_assert(ht::casts<gpt<ht::with_output<amp_bf16, float>>> > ht::casts<gpt<amp_bf16>>);
static_assert(ht::casts<gpt<ht::with_split_master<amp_bf16>>> == 11 && ht::casts<gpt<ht::pure_bf16>> == 11);
// Operands in eight bits are made out of 16: x once, the weight with each use, the gradient once.
static_assert(ht::casts_at<gpt<ht::fp8_hybrid>, "h.*.attn.qkv"> == 2 + 2 &&
              ht::casts_at<gpt<ht::fp8_hybrid>, "h.*.mlp"> == 3 + 2 * (2 + 2));

ht::nn::gpt_config config() { return {.vocabulary = 23, .context = 8, .layers = 3, .heads = 2, .width = 32}; }
struct batch {
    ht::const_view<std::int32_t, 2> tokens, targets;
};
const std::vector<std::int32_t> ids(9, 1);
batch one_row() { return {{ids.data(), {1, 8}}, {ids.data() + 1, {1, 8}}}; }

/// A line in the words of the recorder.
void add_notes(std::set<std::string>& to, const ht::ledger_entry& e) {
    std::vector<std::string> stored;
    const bool has_logits = e.operands[2].name != nullptr;
    for (int i = 0; i < (has_logits ? 2 : 3); ++i) {
        if (e.operands[i].name != nullptr) stored.push_back(e.operands[i].stored);
    }
    const std::string op = e.op;
    const bool is_product = op == "linear" || op == "mlp" || op == "linear_cross_entropy";
    std::sort(stored.begin(), stored.end());
    std::string text = (is_product ? "product" : op + " " + name(e.pass)) + " in " + e.in + " of";
    for (const std::string& s : stored) text += " " + s;
    to.insert(text + " to " + (has_logits ? e.operands[2].stored : e.out));
    if (has_logits) to.insert(std::string("logits in float of ") + e.operands[2].stored + " to float");
}
template <class Entries>
std::set<std::string> notes_of(const Entries& entries) {
    std::set<std::string> notes;
    for (const ht::ledger_entry& e : entries) add_notes(notes, e);
    return notes;
}

TEST_CASE("ledger: what the types of a model say is what its operations are called with") {
    recorder device;
    gpt<mixed> model{device, config()};
    ht::tape calls{device, ht::ledger_of_calls};
    model.loss(calls, one_row());
    const auto& types = ht::ledger<gpt<mixed>>;
    CHECK(calls.entries().size() == types.size());
    for (const ht::ledger_entry& e : types) {
        CAPTURE(e.path);
        CAPTURE(e.op);
        CHECK(std::count(calls.entries().begin(), calls.entries().end(), e) == 1);
    }
    CHECK(calls.casts() == ht::casts<gpt<mixed>>);
    // dy has the stream's bf16, and both backward products are fp32.
    static_assert(ht::casts_at<gpt<mixed>, "h.0.attn.proj"> == 2);
}

TEST_CASE("ledger: what it says is what kernels are given, forward and backward") {
    recorder device;
    gpt<mixed> model{device, config()};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    const auto loss = model.loss(tape, one_row());
    tape.backward(loss, acc);
    const std::set<std::string> said = notes_of(ht::ledger<gpt<mixed>>);
    for (const std::string& note : device.notes) CHECK_MESSAGE(said.count(note) == 1, "not in the ledger: ", note);
    for (const std::string& note : said) CHECK_MESSAGE(device.notes.count(note) == 1, "in the ledger alone: ", note);
    CHECK(device.notes.size() > 15);
}

TEST_CASE("ledger: as a table, and as JSON") {
    std::ostringstream table;
    ht::print_ledger<gpt<amp_bf16>>(table);
    const std::string text = table.str();
    CHECK(text.find("path           op                    pass             in        accumulate  out       casts\n") ==
          0);
    CHECK(text.find("h.*.attn.norm  layer_norm            input gradient   float     float       bfloat16  x: bfloat16 "
                    "as float, dy: bfloat16 as float\n") != std::string::npos);
    CHECK(text.find("embed          embedding             forward          bfloat16  float       bfloat16  -\n") !=
          std::string::npos);
    const std::string json = ht::ledger_json<gpt<amp_bf16>>();
    CHECK(json.find("[\n {\"path\": \"embed\", \"op\": \"embedding\", \"pass\": \"forward\", \"in\": \"bfloat16\"") ==
          0);
    CHECK(json.find("{\"name\": \"x\", \"stored\": \"bfloat16\", \"read\": \"float\"}], \"casts\": 1}") !=
          std::string::npos);
    CHECK(std::count(json.begin(), json.end(), '{') == std::count(json.begin(), json.end(), '}'));
}

}  // namespace
