// SPDX-License-Identifier: MIT
/// \file
/// Moments in 8 bits beside those of bitsandbytes itself (golden/bitsandbytes_8bit.py, which runs its CPU library): its maps, its codes of
/// numbers, and steps of AdamW, Lion and SGD that begin with its state. Where halftone differs on purpose, the tests say by how much:
///
/// - 72 numbers of the map with signs and 100 of the other differ, by one or two units in the last place: bitsandbytes computes maps in
///   float, halftone in double.
/// - On a CPU bitsandbytes does not take the code nearest to x but the one nearest to the middle of x's cell. There are 65,536 cells with
///   their middles from -1 to 1; none of these is 0, so that no number gets the code of 0: not even 0 itself, which has that of 1.56e-5.
///   halftone keeps zeros and small magnitudes, and only a second moment gets the smallest positive code in place of that of 0, unless it
///   and the first moment are 0: AdamW divides by its root. So 3.25e-7 of the largest is the least second moment beside a gradient.
#include <halftone/kernel/optimizer_step/eight_bit/cpu.hpp>

#include "kernel/optimizer_step/eight_bit_golden.hpp"
#include "support/each_set.hpp"

namespace kernel_optimizer_step_eight_bit_bitsandbytes_tests {

using namespace eight_bit_checks;
using doubles = std::vector<double>;

constexpr int count = 300;

/// bitsandbytes' number x(k).
float golden_number(int k, bool has_sign) {
    const double x = (2 * (7919 * k % 8191) + 1) / 16384.0 / std::exp2(k % 24);
    return static_cast<float>(has_sign && k % 2 == 1 ? -x : x);
}

/// The words of a line as floats, from word `first` on.
std::vector<float> floats_of(const support::golden_line& line, std::size_t first) {
    std::vector<float> all;
    for (std::size_t i = first; i < line.words.size(); ++i) all.push_back(static_cast<float>(line.number(i)));
    return all;
}

doubles map_of_bitsandbytes(bool has_sign) {
    for (const support::golden_line& line : support::read_golden("bitsandbytes_8bit.txt")) {
        if (line.kind != "map" || line.words[0] != (has_sign ? "with_sign" : "without_sign")) continue;
        const std::vector<float> values = floats_of(line, 1);
        return {values.begin(), values.end()};
    }
    FAIL("no map");
    return {};
}

/// The distance between the middles of two cells is 2 / 65535; a number is at most half of that from the middle of its cell, and a
/// rounding of x + 1 and one of its multiple, which is below 2^17, may take it to the neighbour.
constexpr double half_cell = 1.0 / 65535, cell_error = support::u * (2 + 4);

/// The middle of the cell in which bitsandbytes finds a number.
float middle_of_cell(float x) {
    const float place = (x + 1.0f) * 32767.5f + 0.5f;
    return -1.0f + 2.0f * std::floor(place) / 65535.0f;
}

/// Whether a code of bitsandbytes lies between those that halftone gives to the ends of the cell, and of `off` around it: the same code if
/// no boundary between two codes does. Counts the latter.
bool fits(const doubles& map, int code, double x, double off, int& alike) {
    const int least = ht::reference::nearest_code(map, x - off - half_cell - cell_error);
    const int most = ht::reference::nearest_code(map, x + off + half_cell + cell_error);
    alike += least == most ? 1 : 0;
    return least <= code && code <= most;
}

TEST_CASE("8-bit state: bitsandbytes' own maps, which differ in 72 and 100 numbers by one unit in the last place or two") {
    for (const bool has_sign : {true, false}) {
        const kernel::dynamic_map& map = has_sign ? maps().with_sign : maps().without_sign;
        const doubles theirs = map_of_bitsandbytes(has_sign);
        REQUIRE(theirs.size() == 256);
        int apart[3] = {};
        for (int code = 0; code < 256; ++code) {
            const auto other = static_cast<float>(theirs[static_cast<std::size_t>(code)]);
            int units = 0;
            for (float ours = map.value(code); ours != other && units < 3; ++units) ours = std::nextafterf(ours, other);
            REQUIRE(units < 3);
            ++apart[units];
        }
        CHECK(apart[1] + apart[2] == (has_sign ? 72 : 100));
        CHECK(apart[2] == (has_sign ? 0 : 3));
    }
}

TEST_CASE("8-bit state: bitsandbytes' own codes of numbers are those of the middles of its cells, and the same away from boundaries") {
    int lines = 0;
    for (const support::golden_line& line : support::read_golden("bitsandbytes_8bit.txt")) {
        if (line.kind != "codes_of_numbers") continue;
        const bool has_sign = line.words[0] == "with_sign";
        const kernel::dynamic_map& map = has_sign ? maps().with_sign : maps().without_sign;
        const doubles numbers = ht::reference::dynamic_map(has_sign), theirs = map_of_bitsandbytes(has_sign);
        int alike = 0, equal = 0, wrong = 0, zeros = 0;
        for (int k = 0; k + 1 < static_cast<int>(line.words.size()); ++k) {
            const float x = golden_number(k, has_sign);
            const int code = static_cast<int>(line.number(static_cast<std::size_t>(k) + 1));
            const int ours = ht::reference::nearest_code(numbers, static_cast<double>(x));
            wrong += code == ht::reference::nearest_code(theirs, static_cast<double>(middle_of_cell(x))) ? 0 : 1;
            wrong += fits(numbers, code, static_cast<double>(x), 0, alike) ? 0 : 1;
            equal += code == ours ? 1 : 0;
            zeros += code == static_cast<int>(map.zero) ? 1 : 0;
        }
        CHECK(line.words.size() == 3001);
        CHECK(wrong == 0);
        CHECK(zeros == 0);
        CHECK(alike == (has_sign ? 1380 : 1231));
        CHECK(equal == (has_sign ? 1797 : 1643));
        ++lines;
    }
    CHECK(lines == 2);
}

/// Parameters, codes and largest magnitudes behind a step.
struct snapshot {
    std::vector<float> parameters;
    std::vector<std::uint8_t> codes[2];
    std::vector<float> absmax[2];
};

/// What bitsandbytes has behind step `t` of a rule; before the first one all codes and magnitudes are zeros.
snapshot behind(const std::string& rule, int t) {
    snapshot s;
    if (t == 0) {
        for (int i = 0; i < count; ++i) s.parameters.push_back(golden_parameter(i));
        for (int k = 0; k < 2; ++k) s.codes[k].assign(count, 0), s.absmax[k].assign(2, 0.0f);
        return s;
    }
    bool here = false;
    int moment = 0;
    for (const support::golden_line& line : support::read_golden("bitsandbytes_8bit.txt")) {
        if (line.kind == "case") here = line.words[0] == rule;
        if (!here || line.kind == "case" || static_cast<int>(line.number(0)) != t) continue;
        const std::vector<float> values = floats_of(line, 1);
        if (line.kind == "parameters") s.parameters = values;
        if (line.kind == "codes") {
            for (const float v : values) s.codes[moment].push_back(static_cast<std::uint8_t>(v));
        }
        if (line.kind == "absmax") s.absmax[moment++] = values;
    }
    REQUIRE(static_cast<int>(s.parameters.size()) == count);
    return s;
}

constexpr double lr = 1.0 / 256, decay = 0.125;

/// An element before a step, and behind it by the definition: with bounds of the difference between two computations in float, by halftone's
/// formulas and by bitsandbytes', whose moments are read from maps that differ by up to two units in the last place: four roundings.
struct element {
    double w, g, m[2];
    double w_error = 0, m_error[2] = {};
};

void step(element& e, const kernel::adamw_rule& r, int t) {
    const double m0 = e.m[0], w0 = e.w, read = std::fabs(e.g);
    ht::view<double, 1> w(&e.w, {1}), g(&e.g, {1}), m(&e.m[0], {1}), v(&e.m[1], {1});
    ht::reference::adamw(w, g, m, v, r, lr, decay, t);
    const double correction1 = 1 - std::pow(r.beta1, t), correction2 = 1 - std::pow(r.beta2, t);
    // Each side as equals_definition() has it, and the maps.
    e.m_error[0] = 2 * support::gamma(11) * (r.beta1 * std::fabs(m0) + (1 - r.beta1) * (read + std::fabs(m0)));
    e.m_error[1] = 2 * support::gamma(14) * e.m[1];
    const double update = std::fabs(e.w - w0 * (1 - lr * decay)), denominator = std::sqrt(e.m[1] / correction2) + r.epsilon;
    e.w_error = 2 * (support::gamma(3) * std::fabs(w0) + update * support::gamma(17) + support::u * std::fabs(e.w)) +
                lr / correction1 * e.m_error[0] / denominator;
}
void step(element& e, const kernel::lion_rule& r, int) {
    const double m0 = std::fabs(e.m[0]), w0 = std::fabs(e.w), read = std::fabs(e.g);
    const double direction = r.beta1 * e.m[0] + (1 - r.beta1) * e.g;
    ht::view<double, 1> w(&e.w, {1}), g(&e.g, {1}), m(&e.m[0], {1});
    ht::reference::lion(w, g, m, r, lr, decay);
    e.m_error[0] = 2 * support::gamma(8) * (r.beta2 * m0 + (1 - r.beta2) * read);
    e.w_error = 2 * support::gamma(3) * (w0 + lr);
    if (std::fabs(direction) <= support::gamma(8) * (r.beta1 * m0 + (1 - r.beta1) * read)) e.w_error += 2 * lr;
}
void step(element& e, const kernel::sgd_rule& r, int t) {
    const double m0 = std::fabs(e.m[0]), w0 = std::fabs(e.w), read = std::fabs(e.g);
    ht::view<double, 1> w(&e.w, {1}), g(&e.g, {1}), m(&e.m[0], {1});
    ht::reference::sgd(w, g, m, r, lr, decay, t);
    e.m_error[0] = 2 * support::gamma(8) * (r.momentum * m0 + read + decay * w0);
    e.w_error = 2 * (support::u * std::fabs(e.w) + support::gamma(3) * lr * std::fabs(e.m[0])) + lr * e.m_error[0];
}

/// Whether codes of a moment behind a step fit the definition's: ours nearest to it, bitsandbytes' nearest to the middle of its cell.
template <class Rule>
void check_codes(const std::vector<element>& all, int k, const guarded<std::uint8_t>& ours, const snapshot& theirs) {
    const doubles map = ht::reference::dynamic_map(kernel::moment_has_sign<Rule>(k));
    int wrong = 0, alike = 0;
    for (int i = 0; i < count; ++i) {
        const auto j = static_cast<std::size_t>(i);
        const double most = static_cast<double>(theirs.absmax[k][j / 256]), x = all[j].m[k] / most;
        const double off = all[j].m_error[k] / most + support::gamma(4) * std::fabs(x);
        int certain = 0;
        wrong += fits(map, theirs.codes[k][j], x, off, certain) ? 0 : 1;
        const auto code = [&](double at) {
            return kernel::moment_divides<Rule>(k) ? ht::reference::second_moment_code(map, at, all[j].m[0] == 0 && all[j].m[k] == 0)
                                                   : ht::reference::nearest_code(map, at);
        };
        wrong += ours[i] >= code(x - off) && ours[i] <= code(x + off) ? 0 : 1;
        wrong += certain == 1 && ours[i] != theirs.codes[k][j] ? 1 : 0;
        alike += certain;
    }
    CHECK(wrong == 0);
    // Second moments are squares: half of them are too small for a cell to tell them apart.
    CHECK(alike > (k == 0 ? 0.6 : 0.3) * count);
}

template <class Rule>
void steps_as_bitsandbytes(ht::cpu& device, const Rule& rule) {
    CAPTURE(Rule::name);
    for (const int t : {1, 2, 40}) {
        CAPTURE(t);
        const snapshot before = behind(Rule::name, t - 1), after = behind(Rule::name, t);
        std::vector<element> all;
        std::vector<float> gradients;
        for (int i = 0; i < count; ++i) {
            const auto j = static_cast<std::size_t>(i);
            gradients.push_back(golden_gradient(i, t));
            element e{.w = static_cast<double>(before.parameters[j]), .g = static_cast<double>(gradients.back()), .m = {}};
            for (int k = 0; k < Rule::moments; ++k) {
                const kernel::dynamic_map& map = kernel::moment_has_sign<Rule>(k) ? maps().with_sign : maps().without_sign;
                e.m[k] = static_cast<double>(map.value(before.codes[k][j])) * static_cast<double>(before.absmax[k][j / 256]);
            }
            step(e, rule, t);
            all.push_back(e);
        }
        const guarded<float> w(before.parameters, 3), g(gradients, 5);
        const guarded<std::uint8_t> codes[2] = {{before.codes[0], 1}, {before.codes[1], 3}};
        const guarded<float> absmax[2] = {{before.absmax[0], 1}, {before.absmax[1], 1}};
        const kernel::step_record record{.steps = t, .lr = lr};
        const kernel::gradient_factors none;
        kernel::eight_bit_step_arguments<Rule, float, ht::bfloat16, float> a{
            .step = {.master = w.view(), .gradient = g.const_view(), .rule = rule, .rates = {.weight_decay = decay},
                     .factors = &none, .step = &record},
            .maps = &maps()};
        for (int k = 0; k < Rule::moments; ++k) a.codes[k] = codes[k].view(), a.absmax[k] = absmax[k].view();
        run(device, a);
        support::comparison parameters, largest;
        for (int i = 0; i < count; ++i) {
            const auto j = static_cast<std::size_t>(i);
            parameters.expect(static_cast<double>(w[i]), static_cast<double>(after.parameters[j]), all[j].w_error);
        }
        for (int k = 0; k < Rule::moments; ++k) {
            double error[2] = {};
            for (std::size_t j = 0; j < all.size(); ++j) error[j / 256] = std::max(error[j / 256], all[j].m_error[k]);
            for (int block = 0; block < 2; ++block)
                largest.expect(static_cast<double>(absmax[k][block]), static_cast<double>(after.absmax[k][static_cast<std::size_t>(block)]),
                               error[block]);
            check_codes<Rule>(all, k, codes[k], after);
        }
        CHECK_WITHIN(parameters);
        CHECK_WITHIN(largest);
    }
}

TEST_CASE("8-bit state: a step from bitsandbytes' state has bitsandbytes' parameters and magnitudes, and its codes away from boundaries") {
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        steps_as_bitsandbytes(device, kernel::adamw_rule{0.9, 0.999, 1e-8});
        steps_as_bitsandbytes(device, kernel::lion_rule{0.9, 0.98});
        steps_as_bitsandbytes(device, kernel::sgd_rule{0.9, 0, kernel::momentum_kind::plain});
    });
}

}  // namespace kernel_optimizer_step_eight_bit_bitsandbytes_tests
