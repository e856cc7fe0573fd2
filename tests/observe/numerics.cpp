// SPDX-License-Identifier: MIT
/// \file
/// The numerics view: its counts of known tensors, its proposals, and its files.
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/observe/numerics/html.hpp>
#include <halftone/observe/report/json.hpp>

#include "observe/operand_checks.hpp"
#include "support/cube.hpp"

namespace observe_numerics_tests {

namespace ht = halftone;

/// One linear layer under "in".
template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "in">> in;
    explicit network(ht::cpu& device) : model(device), in(parameters(), 2, 2) { commit(*this, 1); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.in); }
};

const ht::numerics_row* find(const ht::numerics_view& view, const std::string& operation, ht::pass pass,
                             const std::string& parameter = "") {
    for (const ht::numerics_row& r : view.rows) {
        if (r.by.operation == operation && r.pass == pass && r.parameter == parameter) return &r;
    }
    return nullptr;
}

TEST_CASE("numerics: counts of known tensors are exact") {
    ht::cpu device{{.threads = 1}};
    network<ht::amp_fp16> model{device};
    // The copies: a zero made by rounding, a zero that was there, an infinity made by rounding, and a subnormal
    // number.
    const std::vector<float> weights{1e-9f, 0.0f, 70000.0f, 0x1p-20f};
    model.in.weight.assign(weights);
    const std::vector<float> bias{1.0f, -0.5f};
    model.in.bias.assign(bias);
    ht::tape tape{device, ht::watched};
    ht::numerics_collector numerics{device, tape};
    ht::accumulator acc{model};
    ht::grad_scaler scaler{device, {.init_scale = 4.0f}};
    const std::vector<ht::float16> input{ht::float16(0.0f), ht::float16(0.0f), ht::float16(0.0f), ht::float16(3.0f)};
    const auto y = model.in(tape, tape.constant(ht::const_view<ht::float16, 2>(input.data(), {2, 2})));
    // y: 1 and NaN (0 times infinity), then 1 and NaN: for the second only the kind is known.
    tape.backward(scaler.scale(ht::sum(tape, y)), acc);
    acc.discard();
    const ht::numerics_view view = numerics.take(model, 4.0f, 7);
    CHECK(view.step == 7);

    const ht::numerics_row* forward = find(view, "linear", ht::pass::forward);
    REQUIRE(forward != nullptr);
    CHECK(forward->by.layer == "in");
    CHECK(forward->format == ht::value_format::float16);
    CHECK(forward->counts.elements() == 4);
    CHECK(forward->counts.nans + forward->counts.infinities == 2);
    CHECK(forward->counts.count(0, 0) == 2);
    CHECK(forward->counts.largest == 1.0f);
    CHECK(forward->doublings() == 15);
    CHECK(forward->underflowed == -1);

    const ht::numerics_row* of_bias = find(view, "linear", ht::pass::backward, "in.bias");
    REQUIRE(of_bias != nullptr);
    CHECK(of_bias->format == ht::value_format::float32);
    CHECK(of_bias->counts.count(3, 3) == 2);  // 4 from each row

    const ht::numerics_row* weight = find(view, "", ht::pass::update, "in.weight");
    REQUIRE(weight != nullptr);
    CHECK(weight->is_weight());
    CHECK(weight->counts.zeros == 2);
    CHECK(weight->counts.infinities == 1);
    CHECK(weight->underflowed == 1);
    CHECK(weight->overflowed == 1);
    CHECK(weight->subnormal() == 1.0);
    CHECK(weight->saturation() == 0.0);

    // After take() the counts start at zero.
    CHECK(numerics.take(model).rows.size() == 2);
    std::ostringstream table;
    view.print(table);
    CHECK(table.str().find("in linear") != std::string::npos);
    CHECK(table.str().find("in.weight") != std::string::npos);
}

/// A row with so many values of some exponents.
ht::numerics_row row(const char* layer, ht::pass pass, ht::tensor_role role,
                     std::initializer_list<std::pair<int, ht::extent>> counts,
                     ht::value_format format = ht::value_format::float16) {
    ht::numerics_row r;
    r.by = {layer, "", "linear"};
    r.pass = pass, r.role = role, r.format = format;
    for (const auto& [exponent, n] : counts) {
        r.counts.by_exponent[exponent - ht::tensor_statistics::least_exponent] = n;
        r.counts.largest = std::ldexp(1.0f, exponent);
    }
    return r;
}

TEST_CASE("numerics: proposals follow from the counts") {
    using ht::pass;
    using ht::tensor_role;
    ht::numerics_view view;
    view.loss_scale = 65536;
    // No proposal for values and gradients in the middle of the range.
    view.rows = {row("a", pass::forward, tensor_role::value, {{-3, 900}, {2, 100}}),
                 row("a", pass::backward, tensor_role::gradient, {{-10, 1000}})};
    CHECK(view.proposals().empty());

    // 3% below float16's least normal number 2^-14, where the gradients of b leave room for two doublings.
    view.rows.push_back(row("b", pass::backward, tensor_role::gradient, {{-20, 30}, {-5, 960}, {13, 10}}));
    auto p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].layer == "b");
    CHECK(p[0].policy == "ht::amp_bf16");
    CHECK(p[0].text ==
          "b: 3% of the values of the gradient that linear passes on are below 6.1e-05, float16's least normal number, at "
          "a loss scale of 65536 (and 0 of 1000 (0%) are zeros); still 3% with the scale doubled 2 times, beyond which a "
          "gradient overflows: ht::rule<\"b\", ht::amp_bf16>");
    CHECK(view.proposals(0.05).empty());
    // At exactly the threshold there is no proposal.
    CHECK(view.proposals(0.03).empty());

    // Where the scale can grow by as much, the proposal is a larger scale.
    view.rows.back() = row("b", pass::backward, tensor_role::gradient, {{-16, 30}, {-5, 970}});
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].layer.empty());
    CHECK(p[0].text ==
          "the loss scale: more than 1% of the gradient is below its type's least normal number in 1 operation; with 2 "
          "doublings of 65536 in none of these, and no gradient of the step overflows before 21");

    // Values at the end of the range, and beyond.
    view.rows = {row("c", pass::forward, tensor_role::value, {{15, 1}, {0, 9}})};
    view.rows[0].counts.largest = 61216;
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].text ==
          "c: the values of linear reach 61216 in float16, which ends at 65504: ht::rule<\"c\", ht::amp_bf16>");
    view.rows[0].counts.infinities = 10;
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].text ==
          "c: 10 of 20 (50%) of the values of linear are infinite in float16, which ends at 65504: ht::rule<\"c\", "
          "ht::amp_bf16>");
    // Float has no more range to offer than bfloat16.
    view.rows[0] = row("c", pass::forward, tensor_role::value, {{0, 10}}, ht::value_format::bfloat16);
    view.rows[0].counts.infinities = 1;
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].policy.empty());
    CHECK(p[0].text ==
          "c: 1 of 11 (9.1%) of the values of linear are infinite in bfloat16, which ends at 3.39e+38: float has no "
          "larger range, so that no type helps; make the numbers smaller, in the data (where they may be infinite already) "
          "or in the layer before");

    // Weights: the losses by rounding are known, because the master is.
    ht::numerics_row weight = row("d", pass::update, tensor_role::value, {{-24, 90}});
    weight.parameter = "d.weight";
    weight.counts.zeros = 10;
    weight.underflowed = 5, weight.overflowed = 0;
    view.rows = {weight};
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].text ==
          "d: 5 of 100 (5%) of d.weight are zeros in float16 and not in the master: ht::rule<\"d\", ht::amp_bf16>");
    // Float is the widest type.
    view.rows = {row("e", pass::forward, tensor_role::value, {{127, 10}}, ht::value_format::float32)};
    CHECK(view.proposals().empty());
}

/// The row of a free operation, with the given numbers of zeros and of values that are not finite.
ht::numerics_row free_row(const char* after, const char* operation, ht::pass pass, ht::tensor_role role,
                          std::initializer_list<std::pair<int, ht::extent>> counts,
                          ht::value_format format = ht::value_format::float16) {
    ht::numerics_row r = row("", pass, role, counts, format);
    r.by = {"", after, operation};
    return r;
}
ht::numerics_row with(ht::numerics_row r, ht::extent zeros, ht::extent infinities = 0, ht::extent nans = 0) {
    r.counts.zeros = zeros, r.counts.infinities = infinities, r.counts.nans = nans;
    return r;
}

TEST_CASE("numerics: gradients that are zeros suggest underflow, and a larger scale is proposed") {
    using ht::pass;
    using ht::tensor_role;
    ht::numerics_view view;
    const ht::numerics_row up = row("up", pass::forward, tensor_role::value, {{0, 10}}),
                           down = row("down", pass::forward, tensor_role::value, {{0, 10}}),
                           seed = free_row("down", "loss scale", pass::backward, tensor_role::gradient, {{0, 1}},
                                           ht::value_format::float32),
                           loss = with(free_row("down", "mse_loss", pass::backward, tensor_role::gradient, {}), 10),
                           passed = with(row("down", pass::backward, tensor_role::gradient, {}), 10);
    view.rows = {up, down, seed, loss, passed};
    auto p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].layer.empty());
    CHECK(p[0].text ==
          "the loss scale: all 10 values of the gradient that mse_loss (after down) passes on are zeros in float16, though "
          "the gradient that it received is not: it seems to underflow at a loss scale of 1: take a larger one, such as "
          "ht::grad_scaler finds starting from 65536 (no gradient of this step overflows before 128 doublings), or "
          "ht::rule<\"down\", ht::amp_bf16>, which needs none");
    // A layer whose incoming gradient is zero passes zeros on; so does a layer whose weights are zero.
    ht::numerics_row weight = with(row("down", pass::update, tensor_role::value, {}), 10);
    weight.parameter = "down.weight";
    const ht::numerics_row fine = free_row("down", "mse_loss", pass::backward, tensor_role::gradient, {{0, 10}});
    view.rows = {up, down, seed, fine, passed, weight};
    CHECK(view.proposals().empty());
    view.rows.back() = row("down", pass::update, tensor_role::value, {{0, 10}});
    CHECK(view.proposals().size() == 1);
    // Where the scale cannot grow, the proposal is another type: that of the output of `up`.
    view.rows[3] = free_row("down", "mse_loss", pass::backward, tensor_role::gradient, {{15, 10}});
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].layer == "up");
    CHECK(p[0].text ==
          "up: all 10 values of the gradient that down's linear passes on are zeros in float16, though the gradient that "
          "it received is not: it seems to underflow at a loss scale of 1; with a larger scale a gradient overflows: "
          "ht::rule<\"up\", ht::amp_bf16>");
    // Zeros, and other numbers near the end of the type's range.
    view.rows = {up, seed, with(row("up", pass::backward, tensor_role::gradient, {{-16, 30}}), 70)};
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].text.find("; 70 more values are zeros, and may have underflowed") != std::string::npos);
}

TEST_CASE("numerics: for infinite gradients a smaller scale or another type is proposed") {
    using ht::pass;
    using ht::tensor_role;
    ht::numerics_view view;
    view.loss_scale = 65536;
    const auto infinite = [](ht::value_format format) {
        return with(row("down", pass::backward, tensor_role::gradient, {{0, 5}}, format), 0, 5);
    };
    view.rows = {row("up", pass::forward, tensor_role::value, {{0, 10}}),
                 row("down", pass::forward, tensor_role::value, {{0, 10}}), infinite(ht::value_format::float16)};
    auto p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].layer.empty());
    CHECK(p[0].text ==
          "down: 5 of 10 (50%) of the gradient that linear passes on are infinite in float16, which ends at 65504: a "
          "smaller loss scale than 65536, which ht::grad_scaler chooses by itself after the step that it skips; if other "
          "gradients underflow at that scale, ht::rule<\"up\", ht::amp_bf16>");
    view.loss_scale = 1;
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].layer == "up");
    CHECK(p[0].policy == "ht::amp_bf16");
    view.rows.back() = infinite(ht::value_format::bfloat16);
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].policy.empty());
    CHECK(p[0].text.find("which ends at 3.39e+38: no type has a larger range; make the numbers smaller") !=
          std::string::npos);
    view.loss_scale = 65536;
    CHECK(view.proposals()[0].text.find(": a smaller loss scale than 65536") != std::string::npos);
    // For weights, the buffers' type; the layers after it received the infinity.
    ht::numerics_row weight = infinite(ht::value_format::float16);
    weight.role = tensor_role::parameter_gradient, weight.parameter = "down.weight";
    view.rows[2] = weight;
    view.rows.push_back(with(row("up", pass::backward, tensor_role::gradient, {}), 0, 0, 10));
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].text.find("5 of 10 (50%) of the gradient of weight by linear are infinite") != std::string::npos);
    CHECK(p[0].text.find("ht::with_accumulate<P, float>") != std::string::npos);
    // NaN from finite inputs.
    view.rows[2] = with(infinite(ht::value_format::float16), 0, 0, 5);
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].text ==
          "down: 5 of 10 (50%) of the gradient that linear passes on are NaN, and everything before it is finite: "
          "either infinities arise within the operation, where a smaller loss scale than 65536 helps, which "
          "ht::grad_scaler chooses by itself, or the derivative is undefined there (sqrt at 0), where no type helps");
}

TEST_CASE("numerics: values read in float16 are infinite beyond its range, and their sums are NaN") {
    using ht::pass;
    using ht::tensor_role;
    ht::numerics_view view;
    ht::numerics_row weight = row("down", pass::update, tensor_role::value, {{0, 10}});
    weight.parameter = "down.weight";
    view.rows = {row("up", pass::forward, tensor_role::value, {{17, 10}}, ht::value_format::float32),
                 with(row("down", pass::forward, tensor_role::value, {}, ht::value_format::float32), 0, 0, 10), weight};
    auto p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].text ==
          "down: 10 of 10 (100%) of the values of linear are NaN, and its input reaches 131072, which is infinite in "
          "float16: ht::rule<\"down\", ht::amp_bf16>");
    // In bfloat16 they are finite.
    view.rows.back().format = ht::value_format::bfloat16;
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].policy.empty());
    CHECK(p[0].text.find("there are NaNs in its data or weights") != std::string::npos);
    // A weight is infinite in float16 alone, whatever the type of the results.
    weight.overflowed = 3;
    for (const ht::extent infinities : {0, 4}) {
        view.rows = {row("up", pass::forward, tensor_role::value, {{2, 10}}),
                     with(row("down", pass::forward, tensor_role::value, {}, ht::value_format::float32), 0, infinities,
                          10 - infinities),
                     with(weight, 0, 3, 0)};
        p = view.proposals();
        REQUIRE(p.size() == 1);
        CHECK(p[0].policy == "ht::amp_bf16");
        CHECK(p[0].text.find(infinities == 0
                                 ? "down: 10 of 10 (100%) of the values of linear are NaN"
                                 : "down: 4 of 10 (40%) of the values of linear are infinite in float") == 0);
        CHECK(p[0].text.find("; 3 of 13 (23%) of down.weight are infinite in float16 and not in the master: "
                             "ht::rule<\"down\", ht::amp_bf16>") != std::string::npos);
    }
    weight.overflowed = -1;
    // Weights that an update has made infinite.
    view.rows = {with(weight, 0, 0, 1)};
    p = view.proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].text ==
          "down: 1 of 11 (9.1%) of down.weight are not finite, though no operation gave such a value: the optimizer's "
          "update produced them");
}

using support::cube;

/// x^3 as a custom operation between two layers; optionally in float.
template <class P, bool InFloats = false>
struct cubing : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;
    cubing(ht::cpu& device, float deviation)
        : model{device}, up{parameters(), 4, 4, {.deviation = deviation}}, down{parameters(), 4, 2} {
        commit(*this, 3);
    }
    auto operator()(auto& tape, const auto& x) const {
        const auto h = up(tape, x);
        if constexpr (InFloats) {
            return down(tape, ht::apply<cube>(ht::autocast<ht::full_fp32>(tape), ht::cast<float>(tape, h)));
        } else {
            return down(tape, ht::apply<cube>(tape, h));
        }
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};
/// A step's, with rows of these values and a loss of the factor's size.
template <class Model>
ht::numerics_view seen(float deviation, float loss_scale, float x = 1, float factor = 1) {
    ht::cpu device{{.threads = 1}};
    Model model{device, deviation};
    ht::accumulator acc{model};
    ht::grad_scaler scaler{device, {.init_scale = loss_scale}};
    ht::tape tape{device, ht::watched};
    ht::numerics_collector numerics{device, tape};
    const std::vector<float> inputs{x, 1, -1, 0.5f, 0.25f, -0.75f, 1, -1}, targets{1, -1, 1, -1};
    const auto y = model(tape, tape.to_device(ht::const_view<float, 2>(inputs.data(), {2, 4})));
    const auto loss = ht::mean_squared_error(tape, y, ht::const_view<float, 2>(targets.data(), {2, 2}));
    tape.backward(scaler.scale(ht::map(
                      tape, [factor](auto l) { return l * factor; }, loss)),
                  acc);
    acc.discard();
    return numerics.take(model, loss_scale);
}

TEST_CASE("numerics: a custom operation that overflows is named, and not the layer that receives its result") {
    auto p = seen<cubing<ht::amp_fp16>>(100, 1).proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].layer.empty());
    CHECK(p[0].operation == "cube");
    CHECK(p[0].policy == "ht::full_fp32");
    CHECK(p[0].text.find(" of the values of cube (after up) are infinite in float16, which ends at 65504 (and passed "
                         "on to 3 operations after it, whose types are not the cause): call cube on floats in fp32, "
                         "cube(ht::autocast<ht::full_fp32>(ctx), ht::cast<float>(ctx, x)); the layer that reads its "
                         "floats has to hold them as well, ht::amp_bf16") != std::string::npos);
    const auto finite = [](const ht::numerics_view& view) {
        ht::extent odd = 0;
        for (const ht::numerics_row& r : view.rows) {
            if (r.pass == ht::pass::forward) odd += r.counts.infinities + r.counts.nans;
        }
        return odd == 0;
    };
    // Half of the proposed change does not help, all of it does.
    using down_in_bf16 = ht::recipe<ht::amp_fp16, ht::rule<"down", ht::amp_bf16>>;
    CHECK_FALSE(finite(seen<cubing<down_in_bf16>>(100, 1)));
    CHECK_FALSE(finite(seen<cubing<ht::amp_fp16, true>>(100, 1)));
    CHECK(finite(seen<cubing<down_in_bf16, true>>(100, 1)));
}

TEST_CASE("numerics: steps whose gradients underflow or overflow, and NaN in the data") {
    auto p = seen<cubing<ht::amp_fp16>>(1, 1, 1, 1e-9f).proposals();
    REQUIRE(p.size() == 1);
    CHECK(p[0].text.find("the loss scale: all 4 values of the gradient that mse_loss (after down) passes on are zeros") ==
          0);
    // As proposed: another type for the output of `down`.
    using down_in_bf16 = ht::recipe<ht::amp_fp16, ht::rule<"down", ht::amp_bf16>>;
    const ht::numerics_view mended = seen<cubing<down_in_bf16>>(1, 1, 1, 1e-9f);
    for (const ht::numerics_row& r : mended.rows) {
        if (r.by.operation == "mse_loss" && r.pass == ht::pass::backward) CHECK(r.counts.zeros == 0);
    }
    p = seen<cubing<ht::amp_fp16>>(1, 65536, 1, 100).proposals();
    REQUIRE(!p.empty());
    CHECK(p[0].text.find("are infinite in float16, which ends at 65504: a smaller loss scale than 65536") !=
          std::string::npos);

    p = seen<cubing<ht::amp_fp16>>(1, 1, std::numeric_limits<float>::quiet_NaN()).proposals();
    REQUIRE(!p.empty());
    CHECK(p[0].layer == "up");
    CHECK(p[0].policy.empty());
    CHECK(p[0].text ==
          "up: 4 of 8 (50%) of the values of linear are NaN, and all results before it are finite: there are NaNs "
          "in its data or weights, or its result is undefined there (0 / 0, log of a negative number): no type "
          "helps, unless float16 is too narrow for the data or within it: ht::rule<\"up\", ht::amp_bf16>");
}

/// Whether every element is closed by its own name, in order, and quotes are even within tags.
bool is_well_formed(const std::string& html) {
    std::vector<std::string> open;
    for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
        const std::size_t end = html.find('>', at);
        if (end == std::string::npos) return false;
        const std::string tag = html.substr(at + 1, end - at - 1);
        if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return false;
        if (tag[0] == '!' || tag.back() == '/') continue;
        const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
        if (name == "meta") continue;
        if (tag[0] != '/') {
            open.push_back(name);
        } else {
            if (open.empty() || "/" + open.back() != tag) return false;
            open.pop_back();
        }
    }
    return open.empty();
}

TEST_CASE("numerics: the page is well-formed and loads no other file; the JSON has all numbers") {
    ht::numerics_view view;
    view.loss_scale = 1024, view.step = 3;
    view.rows = {row("a<b>", ht::pass::forward, ht::tensor_role::value, {{-40, 5}, {0, 10}}),
                 row("b", ht::pass::backward, ht::tensor_role::gradient, {{-20, 500}, {15, 1}})};
    view.rows[0].counts.infinities = 2;
    const std::string html = ht::numerics_html(view, "run \"1\" & more");
    CHECK(is_well_formed(html));
    CHECK_FALSE(is_well_formed(html + "</p>"));
    CHECK(html.find("run &quot;1&quot; &amp; more") != std::string::npos);
    CHECK(html.find("a&lt;b&gt; linear") != std::string::npos);
    CHECK(html.find("prefers-color-scheme:dark") != std::string::npos);
    for (const char* outside : {"http:", "https:", "<script", "src=", "href=", "url("})
        CHECK(html.find(outside) == std::string::npos);
    for (const char* format : {"float16", "bfloat16", "float8_e4m3", "float8_e5m2"})
        CHECK(html.find(std::string("<th scope=\"row\">") + format + "</th>") != std::string::npos);
    CHECK(html.find("2 inf") != std::string::npos);
    CHECK(html.find("<td class=\"n\">0.2% near the top</td>") != std::string::npos);  // 2^15 is half of 65504 or more
    CHECK(html.find("<li>None:") == std::string::npos);
    ht::numerics_view quiet;
    quiet.rows = {row("a", ht::pass::forward, ht::tensor_role::value, {{0, 10}})};
    CHECK(ht::numerics_html(quiet, "").find("<li>None: every value is finite, and no gradient in 16 bits has more than "
                                            "1% of its values below the least normal number.</li>") != std::string::npos);
    std::ostringstream table;
    view.print(table);
    CHECK(table.str().find(" saturation infinite   NaN") != std::string::npos);
    CHECK(table.str().find("      100%                 0.2%        0     0") != std::string::npos);
    CHECK(table.str().find("rounding made, known only where the same numbers are there in a wider type; else blank, as for "
                           "all results of operations.\n") != std::string::npos);
    CHECK(html.find("class=\"low\" x=\"0\"") != std::string::npos);  // 2^-40 is the first column

    const auto j = ht::numerics_json(view);
    CHECK(j["step"] == 3);
    CHECK(j["loss_scale"] == 1024);
    REQUIRE(j["tensors"].size() == 2);
    const auto& t = j["tensors"][0];
    for (const char* field : {"layer", "after", "operation", "pass", "tensor", "parameter", "type", "elements", "zeros",
                              "infinities", "nans", "largest", "subnormal_share", "saturation_share", "doublings",
                              "underflowed", "overflowed", "exponents"}) {
        CHECK(t.contains(field));
    }
    CHECK(t.size() == 19);
    CHECK(t["elements"] == 17);
    CHECK(t["underflowed"].is_null());
    CHECK(t["exponents"] == nlohmann::ordered_json::parse("[[-40,5],[0,10]]"));
    CHECK(j["proposals"].size() == view.proposals().size());
    CHECK(j["proposals"].size() == 2);
}

TEST_CASE("numerics: operands in eight bits are counted as products read them, and compared with the tensors that they were made from") {
    ht::cpu device{{.threads = 2}};
    operand_checks::counts_are_exact(device);
}

TEST_CASE("overflow: an operand in eight bits that is not finite is named, with its scale") {
    ht::cpu device{{.threads = 1}};
    operand_checks::overflow_is_named(device);
}

/// The input of a product, in eight bits.
ht::numerics_row operand_row(const char* layer, const char* parameter, const ht::operand_counts& counts,
                             std::initializer_list<std::pair<int, ht::extent>> exponents) {
    ht::numerics_row r =
        row(layer, ht::pass::forward, ht::tensor_role::operand, exponents, ht::value_format::float8_e4m3);
    r.by.operation = "mlp", r.parameter = parameter, r.operand = counts;
    r.counts.zeros = counts.flushed;
    return r;
}

TEST_CASE("numerics: proposals for layers that read eight bits") {
    const ht::scaling_rule rule = ht::delayed_scaling<4>::rule;
    ht::numerics_view view;
    const auto only = [&](const ht::operand_counts& counts,
                          std::initializer_list<std::pair<int, ht::extent>> exponents) {
        view.rows = {operand_row("h.1.mlp", "h.1.mlp.up.weight", counts, exponents)};
        return view.proposals();
    };
    CHECK(only({.rule = rule, .scale = 448, .amax = 1}, {{8, 1000}}).empty());
    // One in a hundred saturates, by no more than half a binade: no proposal.
    CHECK(only({.rule = rule, .scale = 448, .amax = 1.4f, .saturated = 10}, {{8, 1000}}).empty());
    auto p = only({.rule = rule, .scale = 448, .amax = 16, .saturated = 10}, {{8, 1000}});
    REQUIRE(p.size() == 1);
    CHECK(p[0].layer == "h.1.mlp");
    CHECK(p[0].policy == "ht::with_scaling<ht::fp8_hybrid, ht::current_scaling<>>");
    CHECK(
        p[0].text ==
        "h.1.mlp: 10 of 1000 (1%) of the input of up saturate in float8_e4m3: the scale is 448, for an amax of 1, and "
        "the amax is 16: delayed scaling had not met one as large; scale by the tensor's own amax (current_scaling), or "
        "take a longer history than 4 windows: ht::rule<\"h.1.mlp\", ht::with_scaling<ht::fp8_hybrid, "
        "ht::current_scaling<>>>");
    CHECK(only({.rule = rule, .scale = 448, .amax = 1.4f, .saturated = 11}, {{8, 1000}}).size() == 1);
    // Zeros that the tensor's own scale would not make.
    p = only({.rule = rule, .scale = 28, .amax = 1, .flushed = 100}, {{0, 900}});
    REQUIRE(p.size() == 1);
    CHECK(p[0].policy == "ht::with_scaling<ht::fp8_hybrid, ht::current_scaling<>>");
    CHECK(
        p[0].text.find("100 of 1000 (10%) of the input of up are zeros in float8_e4m3 at a scale of 28, for an amax of "
                       "16, and the amax is 1: by its own scale 0% would be (current_scaling)") != std::string::npos);
    // The first window has no history.
    p = only({.rule = rule, .scale = 1, .amax = 0.01f, .flushed = 100}, {{0, 900}});
    REQUIRE(p.size() == 1);
    CHECK(
        p[0].text.find(" are zeros in float8_e4m3 at a scale of 1, the one that delayed scaling begins with, and the "
                       "amax is 0.01: by its own scale 0% would be") != std::string::npos);
    p = only({.rule = rule, .scale = 1, .amax = 1000, .saturated = 100}, {{8, 1000}});
    REQUIRE(p.size() == 1);
    CHECK(p[0].text.find("the scale is 1, the one that delayed scaling begins with, and the amax is 1000") !=
          std::string::npos);
    // And zeros that its own scale would make as well: another type is proposed.
    p = only({.rule = ht::current_scaling<>::rule, .scale = 448, .amax = 1, .flushed = 100, .flushed_by_own = 100},
             {{0, 900}});
    REQUIRE(p.size() == 1);
    CHECK(p[0].policy == "ht::amp_bf16");
    CHECK(
        p[0].text ==
        "h.1.mlp: 100 of 1000 (10%) of the input of up are zeros in float8_e4m3 at a scale of 448, and by the scale of "
        "its own amax, 1, 10% would be: its magnitudes span more than the format's range: "
        "ht::rule<\"h.1.mlp\", ht::amp_bf16>");
    CHECK(view.proposals(0.2).empty());

    // In the table, in JSON and on the page.
    view.rows.push_back(operand_row(
        "h.1.mlp", "h.1.mlp.down.weight",
        {.tensor = ht::scaled_tensor::gradient, .rule = rule, .scale = 448, .amax = 16, .saturated = 30}, {{8, 1000}}));
    std::ostringstream table;
    view.print(table);
    CHECK(table.str().find("saturated      amax     scale") != std::string::npos);
    CHECK(table.str().find("gradient of down (operand)") != std::string::npos);
    CHECK(table.str().find("       3%        16       448\n") != std::string::npos);
    const auto j = ht::numerics_json(view);
    CHECK(j["tensors"][0]["operand"]["scaling"] == "current");
    CHECK(j["tensors"][1]["operand"].dump() ==
          "{\"tensor\":\"gradient\",\"scaling\":\"delayed\",\"scale\":448.0,\"amax\":16.0,\"saturated\":30,"
          "\"flushed\":0,\"flushed_by_own_scale\":0}");
    CHECK(j["proposals"].size() == 1);
    const std::string page = ht::numerics_html(view, "eight bits");
    CHECK(page.find("gradient of down (operand), float8_e4m3, scale 448 for amax 16") != std::string::npos);
    CHECK(page.find("3% saturated") != std::string::npos);
    ht::overflow o;
    o.is_located = true, o.role = ht::tensor_role::operand, o.scale = 28;
    o.operand = {ht::scaled_tensor::weight, ht::value_format::float8_e4m3, nullptr, nullptr, rule};
    CHECK(ht::overflow_json(o)["operand"].dump() == "{\"tensor\":\"weight\",\"type\":\"float8_e4m3\",\"scale\":28.0}");
    o.role = ht::tensor_role::value;
    CHECK_FALSE(ht::overflow_json(o).contains("operand"));
}

}  // namespace observe_numerics_tests
