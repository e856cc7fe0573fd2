// SPDX-License-Identifier: MIT
/// \file
/// The dynamic maps, and a step of AdamW with moments in 8 bits on every instruction set; eight_bit_checks.hpp has the
/// step's tests.
#include <halftone/kernel/optimizer_step/eight_bit/cpu.hpp>

#include "kernel/optimizer_step/eight_bit_bound_checks.hpp"
#include "kernel/optimizer_step/eight_bit_golden.hpp"
#include "kernel/optimizer_step/eight_bit_rules_checks.hpp"
#include "support/each_set.hpp"

namespace kernel_optimizer_step_eight_bit_tests {

using namespace eight_bit_checks;

template <class Check>
void on_each_set(const Check& check) {
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        check(device, set);
    });
}

TEST_CASE("8-bit state: the maps are the paper's, computed in double") {
    int compared = 0;
    for (const support::golden_line& line : support::read_golden("adamw_8bit.txt")) {
        if (line.kind != "map") continue;
        const bool has_sign = line.words[0] == "with_sign";
        const kernel::dynamic_map& map = has_sign ? maps().with_sign : maps().without_sign;
        const std::vector<double> definition = ht::reference::dynamic_map(has_sign);
        REQUIRE(line.words.size() == 257);
        for (int code = 0; code < 256; ++code) {
            CHECK(static_cast<double>(map.value(code)) == line.number(static_cast<std::size_t>(code) + 1));
            CHECK(definition[static_cast<std::size_t>(code)] == line.number(static_cast<std::size_t>(code) + 1));
        }
        CHECK(map.value(static_cast<int>(map.zero)) == 0);
        CHECK(map.has_sign() == has_sign);
        ++compared;
    }
    CHECK(compared == 2);
}

/// The rank of a magnitude by the cells of a map, from the bits of its float.
std::uint32_t rank_of(const kernel::dynamic_map& map, std::uint32_t bits) {
    const std::uint32_t clamped = bits < kernel::dynamic_map::least ? kernel::dynamic_map::least : bits;
    return (map.cells[(clamped - kernel::dynamic_map::least) >> 16] + (clamped & 0xffffu)) >> 16;
}

TEST_CASE("8-bit state: each number from 0 to 1 has the rank of the nearest magnitude") {
    // Ranks ascend with the numbers, so all are right if those on both sides of each boundary and of each cell are.
    for (const bool has_sign : {true, false}) {
        const kernel::dynamic_map& map = has_sign ? maps().with_sign : maps().without_sign;
        const std::vector<double> numbers = ht::reference::dynamic_map(has_sign);
        const auto rank_by_definition = [&](std::uint32_t bits) {
            return ht::reference::nearest_code(numbers, static_cast<double>(ht::bit_cast<float>(bits))) - map.zero;
        };
        int boundaries = 0;
        for (std::uint32_t code = map.zero; code < 255; ++code) {
            const std::uint32_t boundary =
                kernel::first_nearer(map.value(static_cast<int>(code)), map.value(static_cast<int>(code) + 1));
            CHECK(rank_by_definition(boundary) == code + 1 - map.zero);
            CHECK(rank_by_definition(boundary - 1) == code - map.zero);
            CHECK(rank_of(map, boundary) == code + 1 - map.zero);
            CHECK(rank_of(map, boundary - 1) == code - map.zero);
            ++boundaries;
        }
        CHECK(boundaries == (has_sign ? 128 : 255));
        std::uint32_t before = 0;
        for (std::uint32_t bits = kernel::dynamic_map::least; bits <= 0x3f800000u; bits += 0x10000u) {
            CHECK(rank_of(map, bits) >= rank_of(map, bits - 1));
            CHECK(rank_of(map, bits - 1) >= before);
            before = rank_of(map, bits);
        }
        CHECK(rank_of(map, 0x3f800000u) == 255 - map.zero);
        CHECK(rank_of(map, 1) == 0);
    }
}

TEST_CASE("8-bit state: a number has the code of the nearest one in the map, on each instruction set") {
    on_each_set([](ht::cpu& device, ht::isa) { finds_nearest_codes(device); });
}

/// The same bits as the tables of the map, at and around all boundaries and between them, for both signs.
template <bool HasSign>
void arithmetic_finds_the_codes_of_the_tables() {
    const kernel::dynamic_map& map = HasSign ? maps().with_sign : maps().without_sign;
    const ht::portable::codec_by_arithmetic<HasSign> codec(map, kernel::make_dynamic_codec(map));
    std::vector<std::uint32_t> bits{0, 1, 0x00800000u, 0x2f800000u, 0x3f800000u, 0x3f7fffffu};
    for (std::uint32_t code = map.zero; code < 255; ++code) {
        const std::uint32_t boundary = kernel::first_nearer(map.value(static_cast<int>(code)), map.value(static_cast<int>(code) + 1));
        for (const std::uint32_t near : {boundary - 9, boundary - 1, boundary, boundary + 1, boundary + 9}) bits.push_back(near);
    }
    for (std::uint32_t b = 0x30000000u; b < 0x3f800000u; b += 0x1357u) bits.push_back(b);
    int wrong = 0;
    for (const std::uint32_t b : bits) {
        for (const std::uint32_t sign : {0u, HasSign ? 0x80000000u : 0u}) {
            const ht::portable::f32 x = ht::portable::splat(ht::bit_cast<float>(b | sign));
            wrong += codec.codes(x)[1] == ht::portable::codes_by_cells<HasSign>(map, x)[1] ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("8-bit state: codes by arithmetic are those of the tables") {
    arithmetic_finds_the_codes_of_the_tables<true>();
    arithmetic_finds_the_codes_of_the_tables<false>();
}

TEST_CASE("8-bit state: a weight with rare gradients moves as in AdamW") {
    on_each_set([](ht::cpu& device, ht::isa) { rare_gradients_stay_bounded(device); });
}

TEST_CASE("8-bit state: a layer with rare features is trained as with AdamW") {
    ht::cpu device{{.threads = 1}};
    const trained_layer eight = train_with_rare_features(device, true, 2000), floats = train_with_rare_features(device, false, 2000);
    CHECK(eight.largest() < 1.1 * floats.largest());
    CHECK(eight.loss < 2 * floats.loss);
}

TEST_CASE("8-bit state: steps are bounded by those of unrounded moments, on a million elements") {
    on_each_set([](ht::cpu& device, ht::isa) { steps_are_bounded(device, (1 << 20) + 77, 1); });
}

TEST_CASE("8-bit state: steps are bounded by those of unrounded moments, on 64 million elements" * doctest::skip()) {
    on_each_set([](ht::cpu& device, ht::isa) {
        for (std::uint64_t seed = 2; seed < 66; ++seed) steps_are_bounded(device, (1 << 20) + 77, seed);
    });
}

TEST_CASE("8-bit state: codes and parameters of 100 steps are those of the golden file") {
    on_each_set([](ht::cpu& device, ht::isa set) {
        // In portable code the compiler decides whether a multiply-add has one rounding or two.
        CHECK((has_golden_bits(device, "fused") || (set == ht::isa::portable && has_golden_bits(device, "separate"))));
    });
}

TEST_CASE_TEMPLATE("8-bit state: a step equals its definition", S, slabs<float, ht::bfloat16, float>) {
    on_each_set([](ht::cpu& device, ht::isa) { equals_definition<S>(device); });
}

TEST_CASE("8-bit state: a step of each rule has the bits of its step with floats, and the nearest codes") {
    on_each_set([](ht::cpu& device, ht::isa) { equal_steps_of_floats(device); });
}

TEST_CASE("8-bit state: skipped steps, zeros, wrong arguments") {
    on_each_set([](ht::cpu& device, ht::isa) {
        skips(device);
        keeps_zeros(device);
        refuses(device);
        refuses_rules_without_moments(device);
    });
}

TEST_CASE("8-bit state: the bits do not depend on the number of threads") {
    using mixed = slabs<float, ht::bfloat16, float>;
    support::random data{9};
    const extent n = 3 * 16384 + 300;
    const mixed want(data, n);
    want.fill_state(data);
    ht::cpu one{{.threads = 1}};
    run_steps(one, want, 3);
    for (const int threads : {2, 3, 5}) {
        support::random again{9};
        const mixed got(again, n);
        got.fill_state(again);
        ht::cpu many{{.threads = threads}};
        run_steps(many, got, 3);
        CHECK(got.same_bits(want));
        CHECK(got.intact());
    }
}

}  // namespace kernel_optimizer_step_eight_bit_tests
