// SPDX-License-Identifier: MIT
/// \file
/// Watched tapes on the CPU: where a step overflowed, the trainer's report, and the exponent counts of its tensors.
#include <algorithm>

#include <halftone/observe/memory/history.hpp>
#include <halftone/observe/report/json.hpp>

#include "train/overflow_checks.hpp"
#include "train/small_gpt.hpp"

namespace train_watched_tests {

using namespace overflow_checks;

TEST_CASE("overflow: a watched tape shows every result and every gradient, by its layer's path") {
    ht::cpu device{{.threads = 1}};
    shows_everything(device);
}

TEST_CASE("overflow: the first operation is found, for each operation, pass and micro-batch") {
    ht::cpu device{{.threads = 1}};
    finds_each<ht::amp_fp16>(device, 1);
}

TEST_CASE("overflow: a layer that overflows is named, with its step") {
    ht::cpu device{{.threads = 1}};
    finds_a_real_one(device);
}

TEST_CASE("overflow: the report names an input of the operation that was already not finite") {
    ht::cpu device{{.threads = 1}};
    tells_a_bad_input(device);
}

/// Products that are added to the residual stream are too large for float16. Returns what the finder reports.
template <class P>
std::vector<ht::overflow> beyond_float16() {
    ht::cpu device{{.threads = 1}};
    overflow_checks::loop<P, ht::cpu> l(device);
    ht::overflow_finder finder{device, l.tape};
    l.scale_weight("h.1.attn.proj.weight", 0x1p20f);
    l.scale_weight("h.1.attn.qkv.weight", 0x1p6f);
    finder.end_step(l.step(l.whole()));
    return finder.take(l.model);
}

TEST_CASE("overflow: a product beyond float16 overflows in a stream in float16, and not in that of amp_fp16") {
    const auto narrow = beyond_float16<overflow_checks::narrow_fp16>();
    REQUIRE(narrow.size() == 1);
    CHECK(narrow[0].by.layer == "h.1.attn.proj");
    CHECK(narrow[0].format == ht::value_format::float16);
    for (const ht::overflow& o : beyond_float16<ht::amp_fp16>()) CHECK(o.pass == ht::pass::backward);
}

TEST_CASE("overflow: the report names a weight of the layer that is itself not finite") {
    ht::cpu device{{.threads = 1}};
    overflow_checks::loop<overflow_checks::narrow_fp16, ht::cpu> l(device);
    ht::overflow_finder finder{device, l.tape};
    l.scale_weight("h.1.attn.proj.weight", 0x1p40f);  // infinite in float16
    finder.end_step(l.step(l.whole()));
    auto all = finder.take(l.model);
    REQUIRE(all.size() == 1);
    CHECK(all[0].by.layer == "h.1.attn.proj");
    CHECK(all[0].weight.parameter == "h.1.attn.proj.weight");
    CHECK(all[0].weight.format == ht::value_format::float16);
    CHECK(all[0].weight.elements == config.width * config.width);
    CHECK(all[0].weight.found.positive_infinities > 0);
    CHECK(all[0].input.elements == 0);

    // Large, but finite: its product overflows.
    l.scale_weight("h.1.attn.proj.weight", 0x1p-20f);
    l.scale_weight("h.1.attn.qkv.weight", 0x1p6f);
    finder.end_step(l.step(l.whole()));
    all = finder.take(l.model);
    REQUIRE(all.size() == 1);
    CHECK(all[0].by.layer == "h.1.attn.proj");
    CHECK(all[0].weight.elements == 0);
}

struct one_layer : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::linear<ht::at<policy, "in">> in;
    explicit one_layer(ht::cpu& device) : model(device), in(parameters(), 2, 2) { commit(*this, 1); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.in); }
};

TEST_CASE("overflow: another layer's weight, read by a tied head or a free operation, is reported as well") {
    ht::cpu device{{.threads = 1}};
    overflow_checks::loop<ht::amp_fp16, ht::cpu> l(device);
    ht::overflow_finder finder{device, l.tape};
    // A row of the table that no token of the batch looks up: the head reads it nevertheless.
    std::size_t row = 0;
    while (std::find(l.ids.begin(), l.ids.end(), static_cast<std::int32_t>(row)) != l.ids.end()) ++row;
    REQUIRE(row < static_cast<std::size_t>(config.vocabulary));
    ht::store& s = l.model.parameters();
    const auto spoil = [&s](std::size_t at, float value) {
        REQUIRE(s.entries()[0].path == "embed.tokens");
        s.write(0, at, reinterpret_cast<const std::byte*>(&value), 1);
        s.refresh(0);
    };
    spoil(row * static_cast<std::size_t>(config.width), std::numeric_limits<float>::quiet_NaN());
    finder.end_step(l.step(l.whole()));
    auto all = finder.take(l.model);
    REQUIRE(all.size() == 1);
    CHECK(all[0].by.layer == "head");
    CHECK(all[0].weight.parameter == "embed.tokens");
    CHECK(all[0].weight.elements == config.vocabulary * config.width);
    CHECK(all[0].weight.found.nans == 1);
    spoil(row * static_cast<std::size_t>(config.width), 0);

    one_layer model{device};
    model.in.weight.assign(std::vector<float>{1, -std::numeric_limits<float>::infinity(), 1, 1});
    const std::vector<float> values(2, 1.0f);
    const auto x = l.tape.constant(ht::const_view<float, 2>(values.data(), {1, 2}));
    ht::sum(l.tape, ht::linear(l.tape, x, model.in.weight, model.in.bias));
    l.tape.clear();
    finder.end_step();
    all = finder.take(model);
    REQUIRE(all.size() == 1);
    CHECK(all[0].by.operation == "linear");
    CHECK(all[0].by.layer.empty());
    CHECK(all[0].weight.parameter == "in.weight");
    CHECK(all[0].weight.found.negative_infinities == 1);
}

TEST_CASE("overflow: findings can be taken only after a step has ended") {
    ht::cpu device{{.threads = 1}};
    overflow_checks::loop<ht::amp_fp16, ht::cpu> l(device);
    ht::overflow_finder finder{device, l.tape};
    CHECK(finder.take().empty());  // no tensor has been counted
    l.step(l.whole());
    CHECK_THROWS_AS(finder.take(), ht::state_error);
    finder.discard();
    CHECK(finder.take().empty());
    finder.end_step(l.step(l.whole()));
    CHECK(finder.take().empty());
}

TEST_CASE("overflow: watching changes no bit") {
    ht::cpu one{{.threads = 1}}, two{{.threads = 2}};
    changes_nothing(one, two);
}

/// A user-defined layer, which only uses at<>.
template <class P>
struct own_block {
    ht::nn::rms_norm<ht::at<P, "norm">> norm;
    ht::nn::linear<ht::at<P, "fc">> fc;
    own_block(ht::store& s, ht::extent width) : norm(s, width), fc(s, width, width) {}
    template <class Context, class X>
    X operator()(Context&& ctx, const X& x) const {
        return ht::add(ctx, x, ht::gelu(ctx, fc(ctx, norm(ctx, x))));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.fc); }
};

template <class P>
struct own_model : ht::nn::model {
    using policy = P;
    ht::nn::stack<own_block, P, "blocks"> blocks;
    ht::nn::linear<ht::at<P, "out">> out;
    explicit own_model(ht::cpu& device)
        : model(device), blocks(parameters(), 2, ht::extent{4}), out(parameters(), 4, 4) {
        commit(*this, 1);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.blocks, self.out); }
};

struct sink_of_any {
    ht::gradient_slabs slabs;
    explicit sink_of_any(ht::store& s) : slabs(s) {}
    void receive(const auto&) {}
    ht::gradient_slabs* find(const ht::store&) { return &slabs; }
};

TEST_CASE("overflow: users' layers have their paths; free operations have the list's layer and the previous layer") {
    ht::cpu device{{.threads = 1}};
    own_model<ht::recipe<ht::full_fp32, ht::rule<"blocks.last.fc", ht::full_fp32>>> model{
        device};  // the last block has a different type
    sink_of_any sink(model.parameters());
    ht::tape tape{device, ht::watched};
    writer w;
    tape.watch(w);
    const std::vector<float> values(8, 0.5f), targets(8, 1.0f);
    auto x = tape.leaf(ht::const_view<float, 2>(values.data(), {2, 4}));
    const auto start = ht::mul(tape, x, x);
    auto y = model.out(tape, model.blocks(tape, start));
    auto z = ht::log_softmax(ht::autocast<ht::at<ht::full_fp32, "scores">>(tape), y);
    const auto loss = ht::mean_squared_error(tape, z, ht::const_view<float, 2>(targets.data(), {2, 4}));
    tape.backward(loss, sink);
    tape.unwatch(w);
    const std::vector<std::string> forward{" mul forward value",
                                           "blocks.0.norm rms_norm forward value",
                                           "blocks.0.fc linear forward value",
                                           "blocks.0 after blocks.0.fc gelu forward value",
                                           "blocks.0 after blocks.0.fc add forward value",
                                           "blocks.1.norm rms_norm forward value",
                                           "blocks.1.fc linear forward value",
                                           "blocks.1 after blocks.1.fc gelu forward value",
                                           "blocks.1 after blocks.1.fc add forward value",
                                           "out linear forward value",
                                           "scores log_softmax forward value",
                                           " after scores mse_loss forward value",
                                           "scores loss scale backward gradient"};
    REQUIRE(w.seen.size() > forward.size());
    for (std::size_t i = 0; i + 1 < forward.size(); ++i) CHECK(w.seen[i] == forward[i]);
    CHECK(w.seen.back() == " mul backward gradient");
}

TEST_CASE("memory_history: with a watched tape allocations have layers, and lifetimes do not change") {
    ht::cpu device{{.threads = 1}};
    own_model<ht::recipe<ht::full_fp32, ht::rule<"blocks.last.fc", ht::full_fp32>>> model{device};
    sink_of_any sink(model.parameters());
    ht::tape tape{device, ht::watched};
    const std::vector<float> values(8, 0.5f);
    const auto step = [&] {
        device.memory().usage().reset_peaks();
        const auto y = model.out(tape, model.blocks(tape, tape.leaf(ht::const_view<float, 2>(values.data(), {2, 4}))));
        tape.backward(ht::sum(tape, y), sink);
        return device.memory().usage().peak(ht::memory_kind::activation);
    };
    const std::size_t without = step();
    ht::memory_history history{device};
    tape.listen(&history);
    history.begin_step(1);
    CHECK(step() == without);
    history.end_step();
    std::vector<std::string> made;
    const ht::memory_snapshot s = history.snapshot();
    for (const ht::memory_allocation& a : s.allocations) {
        CHECK(a.step == 1);
        if (a.kind == ht::memory_kind::activation) made.push_back(std::string(a.operation) + ' ' + ht::name(a.of_pass) + ' ' + a.layer);
    }
    for (const char* const each :
         {"rms_norm forward blocks.0.norm", "linear forward blocks.0.fc", "gelu forward blocks.0 after blocks.0.fc",
          "linear forward blocks.1.fc", "linear forward out", "sum forward after out", "linear backward out",
          "gelu backward blocks.1 after blocks.1.fc", "linear backward blocks.0.fc"}) {
        INFO(std::string(each));
        CHECK(std::find(made.begin(), made.end(), each) != made.end());
    }
    CHECK(s.outliving(1).empty());
}

TEST_CASE("overflow: gradients of separate queries, keys and values, and inputs that occur twice") {
    ht::cpu device{{.threads = 1}};
    ht::tape tape{device, ht::watched};
    std::vector<float> values(2 * 3 * 2 * 4, 0.25f);
    const ht::const_view<float, 4> all(values.data(), {2, 3, 2, 4});
    using roles = ht::roles<float, float, float>;
    for (const std::size_t at : {std::size_t{0}, std::size_t{3}, std::size_t{4}, std::size_t{5}}) {
        saboteur<ht::cpu> s(device, at, -std::numeric_limits<float>::infinity());
        tape.watch(s);
        ht::overflow_finder finder{device, tape};
        const auto q = tape.leaf(all), k = tape.leaf(all), v = tape.leaf(all);
        tape.backward(ht::mean(tape, ht::attention<roles>(tape, q, k, v)));
        finder.end_step();
        tape.unwatch(s);
        const auto found = finder.take();
        REQUIRE(found.size() == 1);
        CHECK_FALSE(found[0].is_skipped());
        CHECK(found[0].by.operation == (at == 0 || at > 3 ? "attention" : "mean"));
        CHECK(found[0].pass == (at == 0 ? ht::pass::forward : ht::pass::backward));
        CHECK(found[0].text().find("step 1 taken: ") == 0);
    }
    writer w;
    tape.watch(w);
    const auto x = tape.leaf(all);
    tape.backward(ht::mean(tape, ht::mul(tape, x, x)));
    tape.unwatch(w);
    CHECK(w.seen == std::vector<std::string>{" mul forward value", " mean forward value",
                                             " loss scale backward gradient", " mean backward gradient",
                                             " mul backward gradient", " mul backward gradient"});
}

TEST_CASE("overflow: steps that are lost, skipped without a cause, or abandoned") {
    ht::cpu device{{.threads = 1}};
    overflow_checks::loop<ht::amp_fp16, ht::cpu> l(device);
    CHECK_THROWS_AS(ht::overflow_finder(device, l.tape, 0), ht::argument_error);
    ht::overflow_finder finder{device, l.tape, 2};
    l.scaler.update(0x1p60f);
    for (int step = 0; step < 5; ++step) finder.end_step(l.step(l.whole()));
    const auto all = finder.take();
    REQUIRE(all.size() == 2);
    CHECK(all[0].step == 4);
    CHECK(all[1].step == 5);
    CHECK(finder.lost() == 3);

    // An exception was thrown in the middle of a step.
    l.scaler.update(0x1p60f);
    l.tape.backward(l.scaler.scale(l.model.loss(l.tape, l.whole())), l.acc);
    finder.discard();
    l.acc.discard();
    l.scaler.update(1024.0f);
    finder.end_step(l.step(l.whole()));
    CHECK(finder.take().empty());
}

TEST_CASE("overflow: text and JSON of a finding") {
    ht::overflow o;
    o.step = 12;
    o.result = ht::step_result::infinity;
    CHECK(o.text() ==
          "step 12 skipped (infinity): no operation gave it: gradients overflowed as they were unscaled, were "
          "written by hand, or are too large for a moment");
    CHECK(ht::overflow_json(o).dump() == R"({"result":"infinity"})");
    o.is_located = true;
    o.by = {"h.1.mlp", "", "mlp"};
    o.pass = ht::pass::backward;
    o.micro_batch = 2;
    o.role = ht::tensor_role::parameter_gradient;
    o.parameter = "h.1.mlp.up.weight";
    o.format = ht::value_format::float16;
    o.elements = 100;
    o.found = {3, 1, 2, 61234.0f};
    o.before = {"h.1", "h.1.mlp", "add"};
    o.before_largest = 0.5f;
    CHECK(o.text() ==
          "step 12 skipped (infinity): h.1.mlp, mlp, backward, micro-batch 2: 3 +inf, 1 -inf, 2 NaN of 100 values of "
          "the gradient of h.1.mlp.up.weight in "
          "float16, the finite ones up to 61234; the operation before, h.1, add (after h.1.mlp), gave magnitudes up to 0.5");
    CHECK(
        ht::overflow_json(o).dump() ==
        R"({"result":"infinity","layer":"h.1.mlp","after":"","operation":"mlp","pass":"backward","micro_batch":2,"tensor":"parameter gradient",)"
        R"("parameter":"h.1.mlp.up.weight","kind":"+inf","type":"float16","elements":100,"positive_infinities":3,"negative_infinities":1,"nans":2,)"
        R"("largest":61234.0,"before":{"layer":"h.1","operation":"add","largest":0.5},"input":null,"weight":null})");
    o.input = {"", ht::value_format::float32, 8, {0, 0, 5, 1}};
    o.weight = {"h.1.mlp.up.weight", ht::value_format::float16, 9, {1, 0, 0, 1}};
    CHECK(
        o.text().find(
            "up to 0.5; an input of the tape held 5 NaN of 8 values in float already; the weight h.1.mlp.up.weight itself "
            "holds 1 +inf of 9 values in float16") != std::string::npos);
    CHECK(
        ht::overflow_json(o)["weight"].dump() ==
        R"({"parameter":"h.1.mlp.up.weight","type":"float16","elements":9,"positive_infinities":1,"negative_infinities":0,"nans":0})");
    CHECK(ht::overflow_json(o)["input"].dump() ==
          R"({"type":"float","elements":8,"positive_infinities":0,"negative_infinities":0,"nans":5})");
}

struct listener : ht::trainer_callback {
    std::vector<ht::overflow> overflows;
    std::vector<ht::numerics_view> views;
    void on_overflow(const ht::trainer_state& s, const ht::overflow& o) override {
        overflows.push_back(o);
        CHECK(s.step == o.step);
    }
    void on_numerics(const ht::trainer_state&, const ht::numerics_view& v) override { views.push_back(v); }
};

TEST_CASE("trainer: reports skipped steps and tensors' values, and trains as without reports") {
    const std::string text = small::text();
    ht::language_data data{ht::token_view{text}, small::options};
    const ht::training_arguments plain{.per_device_train_batch_size = 2,
                                       .gradient_accumulation_steps = 2,
                                       .max_steps = 6,
                                       .learning_rate = 1e-3,
                                       .scaler = {.init_scale = 0x1p40f}};
    ht::training_arguments watching = plain;
    watching.diagnosis.find_overflow = ht::overflow_search::on;
    watching.diagnosis.numerics_steps = 4;
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::amp_fp16> one{device, small::config, 1}, two{device, small::config, 1};
    CHECK_THROWS_AS(ht::trainer(device, one, watching), ht::argument_error);
    ht::trainer plain_trainer{device, one, plain};
    const auto result = plain_trainer.train(data);
    ht::trainer trainer{device, two, watching, ht::watched};
    listener told;
    trainer.add_callback(told);
    trainer.train(data);
    CHECK(small::masters(one.parameters()) == small::masters(two.parameters()));
    CHECK(result.skipped_steps > 2);
    REQUIRE(told.overflows.size() == static_cast<std::size_t>(result.skipped_steps));
    for (const ht::overflow& o : told.overflows) {
        CHECK(o.by.layer == "head");
        CHECK(o.pass == ht::pass::backward);
        CHECK(o.micro_batch == 1);
    }

    REQUIRE(told.views.size() == 1);
    const ht::numerics_view& view = told.views[0];
    CHECK(view.step == 4);
    CHECK(view.loss_scale == 0x1p37f);
    bool has_infinities = false;
    ht::extent weights = 0;
    for (const ht::numerics_row& r : view.rows) {
        has_infinities = has_infinities || (r.pass == ht::pass::backward && r.counts.infinities + r.counts.nans > 0);
        if (r.is_weight()) weights += r.counts.elements();
        // Two micro-batches of two windows each.
        if (r.by.operation == "layer_norm" && r.role == ht::tensor_role::value)
            CHECK(r.counts.elements() == 4 * small::config.context * small::config.width);
    }
    CHECK(has_infinities);
    ht::extent parameters = 0;
    for (const auto& e : two.parameters().entries()) parameters += static_cast<ht::extent>(e.count);
    CHECK(weights == parameters);
    CHECK(ht::numerics_json(view)["tensors"].size() == view.rows.size());
}

}  // namespace train_watched_tests
