// SPDX-License-Identifier: MIT
/// \file
/// The precision ledger of a GPT: the types in the ledger equal those with which its operations are called, and those that kernels
/// receive, forward and backward, on a device that only records calls.
#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/axis_reduction.hpp>
#include <halftone/autodiff/op/conv2d.hpp>
#include <halftone/autodiff/op/cross_entropy.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/autodiff/op/mask.hpp>
#include <halftone/autodiff/op/shapes.hpp>
#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/linear_cross_entropy/device/by_rows.hpp>
#include <halftone/autodiff/op/channel_norm.hpp>
#include <halftone/autodiff/op/gated.hpp>
#include <halftone/autodiff/op/pooling.hpp>
#include <halftone/nn/classifier.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/nn/llama.hpp>
#include <halftone/nn/sparse_embedding.hpp>
#include <halftone/nn/vit.hpp>
#include <halftone/observe/ledger/ledger.hpp>
#include <halftone/scale/accumulator.hpp>

#include "support/cubed.hpp"

namespace {

namespace ht = halftone;

/// A CPU whose kernels compute nothing and record the types of their arguments.
struct recorder : ht::cpu {
    recorder() : ht::cpu(ht::cpu_options{.threads = 1}) {}
    std::set<std::string> notes;

    /// Operands are recorded in alphabetical order, because a product may exchange them.
    template <class In, class Out, class... Stored>
    void note(const char* kernel) {
        std::vector<std::string> stored{ht::number_traits<std::remove_const_t<Stored>>::name...};
        std::sort(stored.begin(), stored.end());
        std::string text = std::string(kernel) + " in " + ht::number_traits<In>::name + " of";
        for (const std::string& s : stored) text += " " + s;
        notes.insert(text + " to " + ht::number_traits<std::remove_const_t<Out>>::name);
    }
};

/// The type of a product's result: the last one of its epilogue, after those that it stores for the backward pass.
template <class Epilogue>
struct result_of;
template <class Operands, class... Es, class... Ts>
struct result_of<ht::detail::matmul_epilogue<Operands, ht::pack<ht::detail::matmul_result<Es, Ts>...>>> {
    using type = std::tuple_element_t<sizeof...(Ts) - 1, std::tuple<Ts...>>;
};

}  // namespace

namespace halftone {
inline namespace HALFTONE_ABI {

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
struct rotary<recorder> : column_sum<recorder> {};
template <>
struct sum<recorder> : column_sum<recorder> {};
template <>
struct axis_reduction<recorder> {
    template <class... Arguments>
    static void run(recorder&, const Arguments&...) {}
    template <class... Arguments>
    static void accumulate(recorder&, const Arguments&...) {}
};
template <>
struct map<recorder> {
    template <class... Arguments>
    static void run(recorder&, const Arguments&...) {}
    template <class... Arguments>
    static void backward(recorder&, const Arguments&...) {}
    template <map_layout, class... Arguments>
    static void run(recorder&, const Arguments&...) {}
    template <map_layout, class... Arguments>
    static void backward(recorder&, const Arguments&...) {}
};
template <>
struct strided_copy<recorder> : column_sum<recorder> {};
template <>
struct unfold<recorder> : column_sum<recorder> {
    template <class... Arguments>
    static void fold(recorder&, const Arguments&...) {}
};
template <std::size_t LogitBytes>
struct linear_cross_entropy<recorder, LogitBytes> : linear_cross_entropy_by_rows<recorder, LogitBytes> {};
struct nothing_by_rows {
    template <class... Arguments>
    static void forward(recorder&, const Arguments&...) {}
    template <class... Arguments>
    static void backward(recorder&, const Arguments&...) {}
};
template <>
struct softmax<recorder> : nothing_by_rows {};
template <>
struct log_softmax<recorder> : nothing_by_rows {};
template <>
struct rms_norm<recorder> : nothing_by_rows {};
template <>
struct quantize<recorder> {
    template <class... Arguments>
    static void current(recorder&, const Arguments&...) {}
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
struct fp64::each<recorder> {
    template <class Work>
    static void run(recorder&, extent, extent, const Work&) {}
};
template <>
struct gather<recorder> {
    template <class... Arguments>
    static void row_numbers(recorder&, const Arguments&...) {}
    template <class... Arguments>
    static void forward(recorder&, const Arguments&...) {}
    template <class... Arguments>
    static void add(recorder&, const Arguments&...) {}
};
template <>
struct pooling<recorder> {
    template <class... Arguments>
    static void largest(recorder&, const Arguments&...) {}
    template <class... Arguments>
    static void mean(recorder&, const Arguments&...) {}
};
template <>
struct channel_norm<recorder> {
    template <class... Arguments>
    static void apply(recorder&, const Arguments&...) {}
    template <class... Arguments>
    static void center(recorder&, const Arguments&...) {}
};
template <>
struct weighted_cross_entropy<recorder> {
    template <class... Arguments>
    static void forward_rows(recorder&, const Arguments&...) {}
    template <class... Arguments>
    static void backward(recorder&, const Arguments&...) {}
};
template <>
struct packed_positions<recorder> {
    static void run(recorder&, const const_view<std::int32_t, 1>&, const view<std::int32_t, 1>&) {}
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
    static void forward(recorder&, const cross_entropy_forward<X>&) {}
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

}  // namespace HALFTONE_ABI
}  // namespace halftone

namespace {

using ht::amp_bf16, ht::rule;
template <class P>
using gpt = ht::nn::gpt<P>;
// In one block everything is fp32 but the stream; norms give fp32, one perceptron's weights have gradients out of fp32
// products, and the logits are fp32.
using mixed =
    ht::recipe<ht::with_stream<amp_bf16, ht::bfloat16>, rule<"*.norm", ht::full_fp32>, rule<"h.0", ht::full_fp32>,
               rule<"h.1.mlp", ht::with_weight_grad<amp_bf16, float>>, rule<"head", ht::with_output<amp_bf16, float>>>;

// On a stream in bf16 a norm reads bf16 as fp32 forward, and twice backward; logits are read once for the loss and once for
// its gradient.
using on_bf16 = ht::with_stream<amp_bf16, ht::bfloat16>;
static_assert(ht::casts<gpt<on_bf16>> == 3 * 3 + 2 && ht::casts_at<gpt<on_bf16>, "*.norm"> == 9);
// On a stream in fp32 it reads its input as it is, and what adds to the stream reads its gradient as bf16, twice.
static_assert(ht::casts<gpt<amp_bf16>> == 3 * 1 + 2 * 2 + 2);
static_assert(ht::casts_at<gpt<amp_bf16>, "*.norm"> == 3 && ht::casts_at<gpt<amp_bf16>, "h.*.mlp.norm"> == 1 &&
              ht::casts_at<gpt<amp_bf16>, "head"> == 2);
static_assert(ht::casts_at<gpt<amp_bf16>, "h.*.attn"> == 3 && ht::casts_at<gpt<amp_bf16>, "embed"> == 0);
static_assert(ht::casts<gpt<ht::amp_fp16>> == 9 && ht::casts<gpt<ht::full_fp32>> == 0 &&
              ht::casts<gpt<ht::tf32>> == 0 && ht::casts<gpt<ht::split_fp32>> == 0);
static_assert(ht::casts<gpt<ht::with_output<amp_bf16, float>>> > ht::casts<gpt<amp_bf16>>);
static_assert(ht::casts<gpt<ht::with_split_master<amp_bf16>>> == 9 && ht::casts<gpt<ht::pure_bf16>> == 11);
// Operands in eight bits are made from 16 bits: x once, the weight at each use, the gradient once.
static_assert(ht::casts_at<gpt<ht::fp8_hybrid>, "h.*.attn.qkv"> == 2 + 2 &&
              ht::casts_at<gpt<ht::fp8_hybrid>, "h.*.mlp"> == 3 + 2 * (2 + 2));

/// Logits are computed again in the backward pass, which the model's types allow.
ht::nn::gpt_config config() {
    return {.vocabulary = 23,
            .context = 8,
            .layers = 3,
            .heads = 2,
            .width = 32,
            .logits = ht::keep_logits::never};
}
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

static_assert(ht::casts_at<gpt<amp_bf16>, "h.*.attn.proj"> == 2 && ht::casts_at<gpt<amp_bf16>, "h.*.attn.qkv"> == 0);
// dy has the stream's bf16, and both backward products are fp32.
static_assert(ht::casts_at<gpt<mixed>, "h.0.attn.proj"> == 2);

TEST_CASE_TEMPLATE("ledger: the types in the ledger are those with which operations are called", P, mixed, amp_bf16) {
    recorder device;
    gpt<P> model{device, config()};
    ht::tape calls{device, ht::ledger_of_calls};
    model.loss(calls, one_row());
    const auto& types = ht::ledger<gpt<P>>;
    CHECK(calls.entries().size() == types.size());
    for (const ht::ledger_entry& e : types) {
        CAPTURE(e.path);
        CAPTURE(e.op);
        CHECK(std::count(calls.entries().begin(), calls.entries().end(), e) == 1);
    }
    CHECK(calls.casts() == ht::casts<gpt<P>>);
}

template <class P>
using llama = ht::nn::llama<P>;
using mixed_llama =
    ht::recipe<amp_bf16, rule<"*.norm", ht::full_fp32>, rule<"h.0", ht::full_fp32>,
               rule<"h.1.mlp.gate_up", ht::with_output<amp_bf16, float>>, rule<"head", ht::with_output<amp_bf16, float>>>;
// As for a GPT: rotations, gates and grouped heads add no casts.
static_assert(ht::casts<llama<amp_bf16>> == 3 * 1 + 2 * 2 + 2 && ht::casts<llama<ht::full_fp32>> == 0);
// Two norms more in each block.
static_assert(ht::casts<ht::nn::qwen3<amp_bf16>> == 2 * 3 + 3 * 1 + 2 * 2 + 2 && ht::casts<ht::nn::qwen3<ht::full_fp32>> == 0);
static_assert(ht::casts<ht::nn::classifier<ht::full_fp32>> == 0 && ht::casts_at<ht::nn::classifier<on_bf16>, "*.mlp.up"> == 0);
// Products of a post-norm block read the stream itself: forward, and for the weight's gradient.
static_assert(ht::casts_at<ht::nn::classifier<amp_bf16>, "*.norm"> == 0 &&
              ht::casts_at<ht::nn::classifier<amp_bf16>, "*.attn.qkv"> == 2 &&
              ht::casts_at<ht::nn::classifier<on_bf16>, "*.attn.qkv"> == 0);
// An embedding of patches gives the stream, whatever its product gives.
static_assert(ht::casts_at<ht::nn::vit<amp_bf16>, "h.*.attn.norm", const float> == 1 &&
              ht::casts_at<ht::nn::vit<on_bf16>, "h.*.attn.norm", const float> == 3);

TEST_CASE("ledger: a Llama's operations are called with the types in the ledger") {
    recorder device;
    llama<mixed_llama> model{device,
                             {.vocab_size = 23,
                              .hidden_size = 32,
                              .intermediate_size = 16,
                              .num_hidden_layers = 3,
                              .num_key_value_heads = 2,
                              .max_position_embeddings = 8,
                              .logits = ht::keep_logits::never}};
    ht::tape calls{device, ht::ledger_of_calls};
    model.loss(calls, one_row());
    const auto& types = ht::ledger<llama<mixed_llama>>;
    CHECK(calls.entries().size() == types.size());
    for (const ht::ledger_entry& e : types) {
        CAPTURE(e.path);
        CAPTURE(e.after);
        CAPTURE(e.op);
        CHECK(std::count(calls.entries().begin(), calls.entries().end(), e) == 1);
    }
    CHECK(calls.casts() == ht::casts<llama<mixed_llama>>);
}

TEST_CASE("ledger: adapters' products are called with the types in the ledger") {
    recorder device;
    using tuned = llama<ht::recipe<ht::lora<amp_bf16, ht::pure_bf16>, rule<"*.norm", ht::full_fp32>,
                                   rule<"h.*.mlp", ht::lora<ht::full_fp32, amp_bf16>>>>;
    const ht::add_adapters added{device, {.rank = 4}};
    tuned model{device,
                {.vocab_size = 23,
                 .hidden_size = 32,
                 .intermediate_size = 16,
                 .num_hidden_layers = 2,
                 .max_position_embeddings = 8}};
    ht::tape calls{device, ht::ledger_of_calls};
    model.loss(calls, one_row());
    int found = 0;
    for (const ht::ledger_entry& e : calls.entries()) {
        if (std::string(e.op) != "linear") continue;
        CAPTURE(e.path);
        CAPTURE(ht::name(e.pass));
        CAPTURE(e.in);
        CAPTURE(e.out);
        const auto& types = ht::ledger<tuned>;
        CHECK(std::count(types.begin(), types.end(), e) >= 1);
        ++found;
    }
    CHECK(found >= 4 * 5);
}

/// Two layers and a free operation between them.
template <class P>
struct stacked : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;
    explicit stacked(recorder& device) : model(device), up(parameters(), 4, 8), down(parameters(), 8, 4) {
        commit(*this);
    }
    auto operator()(auto& ctx, const auto& x) const { return down(ctx, ht::gelu(ctx, up(ctx, x))); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};
/// A norm, and a perceptron that adds its result to the norm's input.
template <class P>
struct normed : ht::nn::model {
    using policy = P;
    ht::nn::layer_norm<ht::at<P, "norm">> norm;
    ht::nn::mlp<ht::at<P, "mlp">> mlp;
    ht::nn::linear<ht::at<P, "out">> out;
    explicit normed(recorder& device)
        : model(device), norm(parameters(), 4), mlp(parameters(), 4, 8), out(parameters(), 4, 4) {
        commit(*this);
    }
    auto operator()(auto& ctx, const auto& x) const { return out(ctx, mlp(ctx, norm(ctx, x), x)); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.mlp, self.out); }
};
/// Perceptron and linear layer come first, so that they read the data.
template <class P>
struct unnormed : ht::nn::model {
    using policy = P;
    ht::nn::mlp<ht::at<P, "mlp">> mlp;
    ht::nn::linear<ht::at<P, "out">> out;
    explicit unnormed(recorder& device) : model(device), mlp(parameters(), 4, 8), out(parameters(), 4, 4) {
        commit(*this);
    }
    auto operator()(auto& ctx, const auto& x) const { return out(ctx, mlp(ctx, x, x)); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.mlp, self.out); }
};

/// The operations that a step with a loss calls. Const: the input gets no gradient.
template <class Model, class Input>
std::vector<ht::ledger_entry> called() {
    recorder device;
    Model model{device};
    ht::tape calls{device, ht::ledger_of_calls};
    std::vector<float> values(8, 1.0f), targets(8, 1.0f);
    const ht::view<float, 2> rows(values.data(), {2, 4});
    const auto x = std::is_const_v<Input> ? calls.constant(rows) : calls.leaf(rows);
    ht::mean_squared_error(calls, model(calls, x), ht::const_view<float, 2>(targets.data(), {2, 4}));
    return calls.entries();
}
/// All lines of layers are present, and no others; and all lines of the types.
template <class Model, class Input>
void check_agreement() {
    const auto lines = called<Model, Input>();
    const auto& types = ht::ledger<Model, Input>;
    const auto text = [](const ht::ledger_entry& e) {
        return std::string(e.path) + " " + e.op + ", " + name(e.pass) + ": " + e.in + ", " + e.out + "; " +
               ht::detail::ledger::casts_text(e);
    };
    int casts = 0;
    for (const ht::ledger_entry& e : lines) {
        if (std::string(e.path) == "-") continue;
        CHECK_MESSAGE(std::count(types.begin(), types.end(), e) == 1, "called, and not in the types: ", text(e));
        casts += e.casts();
    }
    for (const ht::ledger_entry& e : types)
        CHECK_MESSAGE(std::count(lines.begin(), lines.end(), e) == 1, "in the types, and not called: ", text(e));
    CHECK(casts == ht::casts<Model, Input>);
}

using up_in_fp32 = ht::recipe<amp_bf16, rule<"up", ht::full_fp32>>;
using down_in_fp32 = ht::recipe<amp_bf16, rule<"down", ht::full_fp32>>;
static_assert(ht::casts<stacked<amp_bf16>, float> == 2 && ht::casts<stacked<amp_bf16>, const float> == 2);
static_assert(ht::casts<stacked<up_in_fp32>, float> == 2 && ht::casts<stacked<up_in_fp32>, const float> == 2);
static_assert(ht::casts<stacked<down_in_fp32>, float> == 4 && ht::casts<stacked<down_in_fp32>, const float> == 4);
// dy is read as fp32 for both gradients, and for the weight's alone where the data take none.
using up_gives_bf16 = ht::recipe<amp_bf16, rule<"up", ht::with_output<ht::full_fp32, ht::bfloat16>>>;
static_assert(ht::casts<stacked<up_gives_bf16>, float> == 2 && ht::casts<stacked<up_gives_bf16>, const float> == 1);

TEST_CASE_TEMPLATE("ledger: types and calls of one step agree, for data and for what takes a gradient", Input, float,
                   const float) {
    check_agreement<stacked<amp_bf16>, Input>();
    check_agreement<stacked<up_in_fp32>, Input>();
    check_agreement<stacked<down_in_fp32>, Input>();
    check_agreement<stacked<up_gives_bf16>, Input>();
    using mixed_products =
        ht::recipe<amp_bf16, rule<"norm", ht::full_fp32>, rule<"mlp.down", ht::with_output<amp_bf16, float>>>;
    check_agreement<normed<amp_bf16>, Input>();
    check_agreement<normed<mixed_products>, Input>();
    check_agreement<unnormed<ht::amp_fp16>, Input>();
    check_agreement<unnormed<ht::recipe<amp_bf16, rule<"mlp", ht::fp8_hybrid>>>, Input>();
}

TEST_CASE("ledger of calls: passes that do not run are not listed, and free operations are named") {
    recorder device;
    stacked<amp_bf16> model{device};
    model.parameters().freeze("up");
    ht::tape calls{device, ht::ledger_of_calls};
    std::vector<float> values(8, 1.0f);
    const ht::const_view<float, 2> rows(values.data(), {2, 4});
    ht::mean_squared_error(
        calls,
        model.down(calls, ht::gelu(calls, model.up(calls, calls.leaf(ht::view<float, 2>(values.data(), {2, 4}))))),
        rows);
    std::vector<std::string> passes;
    for (const ht::ledger_entry& e : calls.entries())
        passes.push_back(ht::detail::ledger::place_text_of(e) + " " + e.op + " " + name(e.pass));
    // No weight's gradient of `up`, and none of the target.
    CHECK(passes == std::vector<std::string>{"up linear forward", "up linear input gradient", "after up gelu forward",
                                             "after up gelu input gradient", "down linear forward",
                                             "down linear input gradient", "down linear weight gradient",
                                             "after down mse_loss forward", "after down mse_loss input gradient"});
    CHECK(calls.casts() == 1 + 2);  // x forward; the prediction, forward and backward
    std::ostringstream table;
    ht::print_ledger(table, calls.entries());
    CHECK(table.str().find("after down  mse_loss  forward          float     float       float     a: bfloat16 as "
                           "float\n") != std::string::npos);
    CHECK(ht::ledger_json(calls.entries())
              .find("\"path\": \"-\", \"op\": \"gelu\", \"pass\": \"forward\", \"in\": "
                    "\"bfloat16\", \"accumulate\": \"float\", \"out\": \"bfloat16\", "
                    "\"after\": \"up\"") != std::string::npos);
    // A weight used as a variable, and a custom operation.
    calls.clear();
    const auto constant = calls.constant(rows);
    const auto leaf = calls.leaf(ht::view<float, 2>(values.data(), {2, 4}));
    ht::add(calls, constant, leaf), ht::sum(calls, ht::mul(calls, leaf, constant)), ht::cat(calls, 0, leaf, constant);
    ht::dropout(calls, constant, {.p = 0.5f}, leaf), ht::apply<support::cubed>(calls, leaf);
    ht::matmul(calls, ht::reshape(calls, constant, ht::shape<2>{4, 2}), leaf);
    int gradients = 0;
    for (const ht::ledger_entry& e : calls.entries()) {
        CHECK(std::string(e.after).empty());
        gradients += e.pass == ht::ledger_pass::input_gradient ? 1 : 0;
    }
    CHECK(gradients == 1 + (1 + 1) + 1 + 0 + 1 + 1);
}

TEST_CASE("ledger: kernels receive the types that it lists, forward and backward") {
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
    ht::print_ledger<gpt<on_bf16>>(table);
    const std::string text = table.str();
    CHECK(text.find("path           op                    pass             in        accumulate  out       casts\n") ==
          0);
    CHECK(text.find("h.*.attn.norm  layer_norm            input gradient   float     float       bfloat16  x: bfloat16 "
                    "as float, dy: bfloat16 as float\n") != std::string::npos);
    CHECK(text.find("embed          embedding             forward          bfloat16  float       bfloat16  -\n") !=
          std::string::npos);
    const std::string json = ht::ledger_json<gpt<on_bf16>>();
    CHECK(json.find("[\n {\"path\": \"embed\", \"op\": \"embedding\", \"pass\": \"forward\", \"in\": \"bfloat16\"") ==
          0);
    CHECK(json.find("{\"name\": \"x\", \"stored\": \"bfloat16\", \"read\": \"float\"}], \"casts\": 1}") !=
          std::string::npos);
    CHECK(std::count(json.begin(), json.end(), '{') == std::count(json.begin(), json.end(), '}'));
}

/// A user-defined x^3, computed in float where autocast is on.
struct cubed : support::cubed {
    using cast_inputs = float;
};

using ht::bfloat16, ht::float16;
using bf16_matrix = ht::variable<bfloat16, 2>;
using matrix = ht::variable<float, 2>;

/// Every operation on variables alone. `bare` is the context of those that a region of low precision bans.
void call_free_operations(auto& bare, auto&& ctx, const bf16_matrix& x, const matrix& z) {
#define HALFTONE_FUNCTION(tag, category) ht::tag(ctx, x);
#include <halftone/policy/operation_table.hpp>
    ht::cast<float16>(ctx, x);
    ht::prelu(ctx, x, ht::sum(ctx, z)), ht::map(
                                            ctx, [](auto a) { return 2 * a; }, x);
    ht::add(ctx, x, z), ht::sub(ctx, x, z), ht::mul(ctx, x, z), ht::div(ctx, x, z), ht::pow(ctx, x, z);
    ht::atan2(ctx, x, z), ht::addcmul(ctx, x, z, z), ht::addcdiv(ctx, x, z, z);
    ht::mean(ctx, x), ht::dot(ctx, x, z), ht::norm(ctx, x), ht::softmax(ctx, x), ht::log_softmax(ctx, x);
    ht::cumsum(ctx, x, ht::axes<0>), ht::logsumexp(ctx, x), ht::var(ctx, x), ht::std(ctx, x), ht::amax(ctx, x);
    ht::amin(ctx, x), ht::prod(ctx, x);
    ht::mean_squared_error(ctx, x, z), ht::l1_loss(ctx, x, z), ht::smooth_l1_loss(ctx, x, z), ht::huber_loss(ctx, x, z);
    ht::binary_cross_entropy_with_logits(ctx, x, z), ht::binary_cross_entropy(bare, z, z);
    ht::conv2d(ctx, ht::reshape(ctx, x, ht::shape<4>{1, 1, 4, 4}), ht::reshape(ctx, z, ht::shape<4>{4, 1, 2, 2}));
    ht::matmul(ctx, x, z), ht::linear(ctx, x, z), ht::cat(ctx, 0, x, z), ht::stack(ctx, 0, x, z);
    ht::permute(ctx, x, ht::axes<1, 0>), ht::transpose(ctx, x, ht::axes<0, 1>), ht::slice(ctx, x, ht::axes<1>, 1, 3);
    ht::select(ctx, x, ht::axes<1>, 1), ht::chunk<2>(ctx, x, ht::axes<1>), ht::flip(ctx, x, ht::axes<1>);
    ht::expand(ctx, x, ht::shape<3>{2, -1, -1});
    ht::dropout(ctx, x, {.p = 0.5f}), ht::dropout(ctx, x, {.p = 0.5f}, z), ht::apply<cubed>(ctx, x);
    ht::glu(ctx, x), ht::swiglu(ctx, x), ht::geglu(ctx, x);
    static const float angles[8] = {};
    ht::rotary(ctx, ht::reshape(ctx, x, ht::shape<4>{1, 2, 2, 4}), ht::const_view<float, 2>(angles, {2, 4}));
    ht::cross_entropy(ctx, x, ht::const_view<std::int32_t, 1>(ids.data(), {4}));
    const ht::const_view<std::int32_t, 1> rows(ids.data(), {4});
    const ht::const_view<std::int32_t, 2> places(ids.data(), {4, 1});
    ht::cross_entropy(ctx, x, rows, {.label_smoothing = 0.1}), ht::gather(ctx, x, ht::axes<1>, places);
    ht::index_select(ctx, x, ht::axes<0>, rows), ht::take_along_dim(ctx, x, ht::axes<1>, places);
    ht::index_add(ctx, x, ht::axes<0>, rows, z),
        ht::scatter_add(ctx, x, ht::axes<1>, places, ht::gather(ctx, z, ht::axes<1>, places));
    ht::where(ctx, z, x, z), ht::masked_fill(ctx, x, z, 0.5), ht::tril(ctx, x), ht::triu(ctx, x);
    const auto images = ht::reshape(ctx, x, ht::shape<4>{1, 1, 4, 4});
    ht::max_pool2d(ctx, images, {2}), ht::avg_pool2d(ctx, images, {2}), ht::adaptive_avg_pool2d(ctx, images, 1);
    ht::batch_norm(ctx, images, ht::absent{}, ht::absent{}, ht::absent{}, ht::absent{}, {.training = true});
    ht::group_norm(ctx, images, 1);
}

/// Every operation that layers are made of, and of parameters alone.
template <class P>
void call_layers(auto& device, auto& ctx, const bf16_matrix& x) {
    ht::store s{device.memory()};
    const ht::nn::linear<ht::at<P, "fc">> fc(s, 4, 4);
    const ht::nn::mlp<ht::at<P, "mlp">> mlp(s, 4, 8);
    const ht::nn::layer_norm<ht::at<P, "ln">> ln(s, 4);
    const ht::nn::rms_norm<ht::at<P, "rms">> rms(s, 4);
    const ht::nn::attention<ht::at<P, "attn">> attn(s, 4, 2);
    const ht::nn::embedding<ht::at<P, "table">> table(s, 4, 8, 4);
    const ht::nn::sparse_embedding<ht::at<P, "rows">> rows(s, 4, 4);
    s.commit();
    const auto cube = ht::reshape(ctx, x, ht::shape<3>{1, 4, 4});
    const auto heads = ht::reshape(ctx, x, ht::shape<4>{1, 2, 2, 4});
    fc(ctx, x), mlp(ctx, x, x), ln(ctx, x), rms(ctx, x), attn(ctx, cube, cube);
    table(ctx, one_row().tokens), rows(ctx, one_row().tokens);
    ht::attention<ht::layer_roles<P, ht::op::attention, decltype(ctx)>>(ctx, heads, heads, heads);
    ht::linear_cross_entropy<ht::layer_roles<P, ht::op::linear_cross_entropy, decltype(ctx)>>(
        ctx, x, fc.weight, ht::const_view<std::int32_t, 1>(ids.data(), {4}));
    ht::as_variable(ctx, fc.weight), ht::apply<cubed>(ctx, fc.weight);
    ht::linear(ht::autocast<amp_bf16>(ctx), x, fc.weight, fc.bias);
}

/// A line of the table, without its padding.
std::string text_of(const ht::ledger_entry& e) {
    return std::string(e.path) + " " + e.op + ", " + name(e.pass) + ": in " + e.in + ", sums " + e.accumulate +
           ", out " + e.out + "; " + ht::detail::ledger::casts_text(e);
}
using strings = std::vector<std::string>;
strings lines_of(const std::vector<ht::ledger_entry>& entries, const std::string& op) {
    strings all;
    for (const ht::ledger_entry& e : entries) {
        if (op == e.op) all.push_back(text_of(e));
    }
    return all;
}

struct free_calls {
    recorder device;
    ht::tape<recorder, ht::ledger_tape> calls{device};
    std::vector<bfloat16> values = std::vector<bfloat16>(16, bfloat16(1.0f));
    std::vector<float> others = std::vector<float>(16, 1.0f);
    bf16_matrix x = calls.leaf(ht::view<bfloat16, 2>(values.data(), {4, 4}));
    matrix z = calls.leaf(ht::view<float, 2>(others.data(), {4, 4}));
};

TEST_CASE("ledger of calls: every operation reports its types, inside and outside regions") {
    free_calls f;
    call_free_operations(f.calls, ht::autocast<amp_bf16>(f.calls), f.x, f.z);
    call_free_operations(f.calls, f.calls, f.x, f.z);
    call_layers<amp_bf16>(f.device, f.calls, f.x);
    std::set<std::string> names;
    for (const ht::ledger_entry& e : f.calls.entries()) {
        names.insert(e.op);
        for (const char* type : {e.in, e.accumulate, e.out}) {
            CAPTURE(e.op);
            CHECK(std::string(type).find_first_of("? ") == std::string::npos);
            CHECK(std::string(type) != "");
        }
    }
    std::set<std::string> all{"cubed", "as_variable"};
#define HALFTONE_OPERATION(tag, category, kind, ...) all.insert(ht::op::tag::name);
#include <halftone/policy/operation_table.hpp>
    all.erase(ht::op::sparse_embedding::name);  // is looked up by the operation of a dense table
    for (const std::string& name : all) CHECK_MESSAGE(names.count(name) == 1, "the ledger has no line of ", name, ", or no test calls it");
    CHECK(names.size() == all.size());
}

TEST_CASE("ledger of calls: free operations, line by line") {
    free_calls f;
    const auto region = ht::autocast<ht::with_input_grad<amp_bf16, float>>(f.calls);
    ht::matmul(region, f.x, f.z);
    CHECK(lines_of(f.calls.entries(), "matmul") ==
          strings{"- matmul, forward: in bfloat16, sums float, out bfloat16; b: float as bfloat16",
                  "- matmul, input gradient: in float, sums float, out bfloat16; dy: bfloat16 as float",
                  "- matmul, input gradient: in bfloat16, sums float, out float; -"});
    f.calls.clear();
    ht::matmul(ht::autocast<ht::with_weight_grad<amp_bf16, float>>(f.calls), f.x, f.z);
    CHECK(lines_of(f.calls.entries(), "matmul") ==
          strings{"- matmul, forward: in bfloat16, sums float, out bfloat16; b: float as bfloat16",
                  "- matmul, input gradient: in bfloat16, sums float, out bfloat16; b: float as bfloat16",
                  "- matmul, input gradient: in float, sums float, out float; a: bfloat16 as float, dy: bfloat16 as "
                  "float"});
    ht::cat(region, 0, f.x, f.z);
    CHECK(lines_of(f.calls.entries(), "cat") ==
          strings{"- cat, forward: in float, sums float, out float; a: bfloat16 as float",
                  "- cat, input gradient: in float, sums float, out bfloat16; -",
                  "- cat, input gradient: in float, sums float, out float; -"});
    ht::dropout(region, f.x, {.p = 0.5f});
    CHECK(lines_of(f.calls.entries(), "dropout") ==
          strings{"- dropout, forward: in bfloat16, sums float, out bfloat16; -",
                  "- dropout, input gradient: in bfloat16, sums float, out bfloat16; -"});
    // exp is read in fp32, and its gradient reads x once more.
    ht::exp(region, f.x);
    CHECK(lines_of(f.calls.entries(), "exp") ==
          strings{"- exp, forward: in float, sums float, out float; a: bfloat16 as float",
                  "- exp, input gradient: in float, sums float, out bfloat16; a: bfloat16 as float"});
    // Softmax's backward pass reads its result, in float.
    ht::softmax<float>(f.calls, f.x);
    CHECK(lines_of(f.calls.entries(), "softmax") ==
          strings{"- softmax, forward: in float, sums float, out float; x: bfloat16 as float",
                  "- softmax, input gradient: in float, sums float, out bfloat16; -"});
    // Cast inside a region, and not cast outside.
    ht::apply<cubed>(region, f.x), ht::apply<cubed>(f.calls, f.x);
    CHECK(lines_of(f.calls.entries(), "cubed") ==
          strings{"- cubed, forward: in float, sums float, out float; a: bfloat16 as float",
                  "- cubed, input gradient: in float, sums float, out bfloat16; -",
                  "- cubed, forward: in bfloat16, sums float, out bfloat16; -",
                  "- cubed, input gradient: in bfloat16, sums float, out bfloat16; -"});
    f.calls.clear();
    ht::linear(region, f.x, f.z);
    CHECK(f.calls.casts() == 1 + 1 + 0);  // the weight forward, dy for dx, x in bf16 for dw
}

}  // namespace
