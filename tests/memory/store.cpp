// SPDX-License-Identifier: MIT
/// \file
/// The parameter store: groups by storage types, paths, initial values, copies, freezing.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/memory/store.hpp>
#include <halftone/policy.hpp>

#include "memory/assign_checks.hpp"
#include "support/sanitizer.hpp"

namespace memory_store_tests {

namespace ht = halftone;
using ht::at;
using ht::bfloat16;
using ht::store;

/// fc (weight and bias, bf16 copies), norm (gain, read as fp32), deep below a list.
template <class P>
struct layers {
    ht::host_memory memory;
    ht::store parameters{memory};
    ht::parameter<ht::storage_signature<P, ht::op::linear>, 2> weight;
    ht::parameter<ht::storage_signature<P, ht::op::linear>, 1> bias;
    ht::parameter<ht::storage_signature<P, ht::op::layer_norm>, 1> gain;

    layers() {
        weight = parameters.add<at<P, "fc">, ht::op::linear>("weight", ht::shape<2>{5, 13}, {.deviation = 0.5f});
        gain = parameters.add<at<P, "norm">, ht::op::layer_norm>("gain", ht::shape<1>{70}, {.mean = 1});
        bias = parameters.add<at<P, "fc">, ht::op::linear>("bias", ht::shape<1>{5}, {});
    }
};

TEST_CASE("store: parameters with the same storage types are in one group, aligned to granules") {
    layers<ht::amp_bf16> l;
    const store& s = l.parameters;
    REQUIRE(s.groups().size() == 2);
    CHECK(s.groups()[0].copy_bytes == 2);
    CHECK(s.groups()[1].copy_bytes == 0);  // norms read their fp32 masters
    REQUIRE(s.entries().size() == 3);
    CHECK(s.entries()[0].path == "fc.weight");
    CHECK(s.entries()[1].path == "norm.gain");
    CHECK(s.entries()[0].group == s.entries()[2].group);
    CHECK(s.entries()[2].master == 128);  // 65 weights occupy two granules of 64
    CHECK(s.size() == 65 + 70 + 5);
    CHECK(s.bytes() == 3 * 64 * (4 + 2) + 128 * 4);
    CHECK(l.memory.usage().live() == 0);  // allocated by commit
    l.parameters.commit();
    CHECK(l.memory.usage().live() == s.bytes());
    CHECK(l.memory.usage().live(ht::memory_kind::master) == (192 + 128) * 4);
    CHECK(l.memory.usage().live(ht::memory_kind::copy) == 192 * 2);
    layers<ht::full_fp32> plain;
    CHECK(plain.parameters.groups().size() == 1);
}

TEST_CASE("store: calls in the wrong order are refused") {
    layers<ht::amp_bf16> l;
    CHECK_THROWS_WITH_AS(l.weight.values(),
                         "store: its parameters have no memory yet; call commit() once all layers are made",
                         ht::state_error);
    CHECK_THROWS_AS(l.weight.master(), ht::state_error);
    CHECK_THROWS_AS(l.parameters.refresh(), ht::state_error);
    CHECK_THROWS_AS(l.parameters.freeze("*"), ht::state_error);
    l.parameters.commit();
    CHECK_THROWS_WITH_AS(l.parameters.commit(), "store: committed twice", ht::state_error);
    CHECK_THROWS_WITH_AS((l.parameters.add<ht::amp_bf16, ht::op::linear>("late", ht::shape<1>{1}, {})),
                         "store: late added after commit", ht::state_error);
    store other{l.memory};
    CHECK_THROWS_AS((other.add<ht::amp_bf16, ht::op::linear>("bad", ht::shape<2>{3, -1}, {})), ht::shape_error);
}

TEST_CASE("store: initial values follow from seed, order and index, whatever the policy") {
    layers<ht::amp_bf16> a, other;
    layers<ht::full_fp32> b;
    layers<ht::pure_bf16> c;
    a.parameters.commit(7), b.parameters.commit(7), c.parameters.commit(7), other.parameters.commit(8);
    double sum = 0, squares = 0, differing = 0;
    for (ht::extent i = 0; i < 65; ++i) {
        const float v = a.weight.master().data()[i];
        CHECK(v == b.weight.master().data()[i]);
        CHECK(c.weight.master().data()[i].bits() == bfloat16(v).bits());
        CHECK(a.weight.values().data()[i].bits() == bfloat16(v).bits());
        differing += v != other.weight.master().data()[i] ? 1 : 0;
        sum += static_cast<double>(v), squares += static_cast<double>(v) * static_cast<double>(v);
    }
    CHECK(differing == 65);
    // 65 draws with standard deviation 1/2: their mean and mean square are within five standard deviations.
    CHECK(std::fabs(sum / 65) < 5 * 0.5 / std::sqrt(65.0));
    CHECK(std::fabs(squares / 65 - 0.25) < 5 * 0.25 * std::sqrt(2.0 / 65));
    for (ht::extent i = 0; i < 70; ++i) CHECK(a.gain.values().data()[i] == 1.0f);
    for (ht::extent i = 0; i < 5; ++i) CHECK(static_cast<float>(a.bias.values().data()[i]) == 0.0f);
    // Padding between parameters is zero, for passes over whole slabs.
    const auto* slab = reinterpret_cast<const float*>(a.parameters.groups()[0].master.data());
    for (std::size_t i = 65; i < 128; ++i) CHECK(slab[i] == 0.0f);
}

TEST_CASE("store: evenly distributed initial values") {
    ht::host_memory memory;
    store s{memory};
    const auto centred = s.add<ht::amp_bf16, ht::op::linear>("centred", ht::shape<1>{4099}, {.bound = 0.25f});
    const auto shifted = s.add<ht::full_fp32, ht::op::linear>("shifted", ht::shape<1>{4099}, {.mean = 3, .bound = 1});
    s.commit(7);
    const auto check = [](const auto& v, double mean, double bound) {
        double sum = 0, least = static_cast<double>(v(0)), most = least, repeated = 0;
        for (ht::extent i = 0; i < v.size(); ++i) {
            const double x = static_cast<double>(v(i));
            sum += x, least = std::min(least, x), most = std::max(most, x);
            if (i > 0) repeated += v(i) == v(i - 1) ? 1 : 0;
        }
        CHECK(least >= mean - bound);
        CHECK(most <= mean + bound);
        // The probability that none of 4099 draws is in the outermost two hundredth of the range is exp(-20). Their mean is
        // within five of its standard deviations, bound / sqrt(3 x 4099).
        CHECK(least < mean - 0.99 * bound);
        CHECK(most > mean + 0.99 * bound);
        CHECK(std::fabs(sum / 4099 - mean) < 5 * bound / std::sqrt(3.0 * 4099));
        CHECK(repeated == 0);
    };
    check(centred.master(), 0, 0.25);
    check(shifted.master(), 3, 1);
}

TEST_CASE("store: initial values out of range are refused") {
    ht::host_memory memory;
    store s{memory};
    const auto add = [&](const ht::initial& values) {
        s.add<ht::amp_bf16, ht::op::linear>("w", ht::shape<1>{1}, values);
    };
    CHECK_THROWS_WITH_AS(
        add({.deviation = -1}),
        "store: w begins with mean 0, deviation -1, bound 0; expected finite numbers, deviation and bound 0 or more",
        ht::argument_error);
    CHECK_THROWS_AS(add({.bound = -0.5f}), ht::argument_error);
    CHECK_THROWS_AS(add({.mean = std::numeric_limits<float>::quiet_NaN()}), ht::argument_error);
    CHECK_THROWS_AS(add({.deviation = std::numeric_limits<float>::infinity()}), ht::argument_error);
    CHECK_THROWS_WITH_AS(
        add({.deviation = 1, .bound = 1}),
        "store: w begins with both a deviation (normally distributed) and a bound (uniformly distributed); expected at most "
        "one of them",
        ht::argument_error);
    CHECK(s.entries().empty());
}

TEST_CASE("store: parameters that fit one by one but not together are refused") {
    ht::host_memory memory;
    store s{memory};
    const auto add = [&](ht::extent n) { s.add<ht::amp_bf16, ht::op::linear>("w", ht::shape<1>{n}, {}); };
    constexpr ht::extent half = INT64_MAX / 32;
    add(half - 64);
    add(half - 64);
    CHECK_THROWS_WITH_AS(
        add(256), "store: w (256) after 576460752303423360 numbers of other parameters: more than memory can hold",
        ht::out_of_memory);
    CHECK(s.entries().size() == 2);
    add(1);
    CHECK(s.bytes() > static_cast<std::size_t>(half) * 2 * 5);  // no overflow
    if (!support::has_sanitizer) CHECK_THROWS_AS(s.commit(), ht::out_of_memory);
    CHECK(memory.usage().live() == 0);
}

TEST_CASE("store: many parameters, added one after the other") {
    ht::host_memory memory;
    store s{memory};
    for (int i = 0; i < 200000; ++i) s.add<ht::full_fp32, ht::op::linear>("w", ht::shape<1>{1}, {});
    CHECK(s.entries().back().master == 199999 * 64);
}

TEST_CASE("store: refresh rounds masters that were changed by hand, also when some are frozen") {
    layers<ht::amp_bf16> l;
    l.parameters.commit();
    l.weight.master()(0, 1) = 3.14159274f;
    CHECK(static_cast<float>(l.weight.values()(0, 1)) != 3.140625f);
    l.parameters.refresh();
    CHECK(static_cast<float>(l.weight.values()(0, 1)) == 3.140625f);
    l.parameters.freeze("fc.weight");
    l.bias.master()(4) = 1.0f / 3;
    l.parameters.refresh();
    CHECK(l.bias.values()(4).bits() == bfloat16(1.0f / 3).bits());
    CHECK(static_cast<float>(l.weight.values()(0, 1)) == 3.140625f);
}

TEST_CASE("store: a tied parameter is one entry") {
    layers<ht::amp_bf16> l;
    l.parameters.commit();
    const auto tied = l.weight;
    tied.master()(2, 3) = 4;
    CHECK(l.weight.master()(2, 3) == 4);
    CHECK(tied.entry() == l.weight.entry());
    CHECK(&tied.owner() == &l.parameters);
}

TEST_CASE("freeze: by pattern; masters are released if kernels read a copy, gradients always") {
    layers<ht::amp_bf16> l;
    l.parameters.commit(3);
    const bfloat16 weight = l.weight.values()(4, 12);
    l.bias.master()(1) = 5;
    l.parameters.refresh();
    const unsigned layout = l.parameters.layout();
    CHECK(l.parameters.freeze("h.*") == 0);
    CHECK(l.parameters.layout() == layout);
    CHECK(l.parameters.freeze("fc.weight") == 1);
    CHECK(l.parameters.layout() != layout);
    CHECK(l.weight.is_frozen());
    CHECK(!l.bias.is_frozen());
    CHECK(l.weight.values()(4, 12).bits() == weight.bits());
    CHECK_THROWS_WITH_AS(l.weight.master(),
                         "store: fc.weight is frozen and kept its rounded copy only; read it in that type, as a "
                         "layer or ht::as_variable<T> does",
                         ht::state_error);
    CHECK(l.bias.master()(1) == 5);
    CHECK(static_cast<float>(l.bias.values()(1)) == 5);
    CHECK(l.memory.usage().live(ht::memory_kind::master) == (64 + 128) * 4);
    CHECK(l.parameters.entries()[0].gradient == store::nowhere);
    CHECK(l.parameters.groups()[0].gradients == 64);

    CHECK(l.parameters.freeze("norm") == 1);  // no copy: the master stays, since kernels read it
    CHECK(l.gain.master()(69) == 1);
    CHECK(l.parameters.freeze("*") == 3);
    CHECK(l.memory.usage().live(ht::memory_kind::master) == 128 * 4);
    CHECK(static_cast<float>(l.bias.values()(1)) == 5);
    l.parameters.refresh();
    CHECK(l.parameters.freeze("*") == 3);
}

TEST_CASE("freeze: a master that another layer reads is kept") {
    layers<ht::amp_bf16> l;
    l.parameters.keep_master(l.weight.entry());
    l.parameters.commit(3);
    const float before = l.weight.master()(1, 1);
    l.parameters.freeze("*");
    CHECK(l.weight.master()(1, 1) == before);
    CHECK_THROWS_AS(l.bias.master(), ht::state_error);
}

TEST_CASE("store: an index replaces '*' and \"last\" at the list's level, and no other name") {
    ht::host_memory memory;
    store s(memory);
    using P = ht::amp_bf16;
    {
        const store::indexed here(s, 1, 3);
        s.add<at<at<at<P, "h">, "*">, "fc">, ht::op::linear>("weight", ht::shape<1>{1}, {});
        s.add<at<at<at<P, "h">, "last">, "last">, ht::op::linear>("weight", ht::shape<1>{1}, {});
        s.add<at<at<at<P, "h">, "3">, "fc">, ht::op::linear>("bias", ht::shape<1>{1}, {});
        const store::indexed inner(s, 3, 12);
        s.add<at<at<at<at<P, "h">, "*">, "experts">, "*">, ht::op::linear>("weight", ht::shape<1>{1}, {});
    }
    s.add<at<P, "last">, ht::op::linear>("weight", ht::shape<1>{1}, {});
    s.add<P, ht::op::linear>("scale", ht::shape<1>{1}, {});
    const char* want[] = {"h.3.fc.weight",         "h.3.last.weight", "h.3.fc.bias",
                          "h.3.experts.12.weight", "last.weight",     "scale"};
    for (std::size_t i = 0; i < 6; ++i) CHECK(s.entries()[i].path == want[i]);
}

TEST_CASE("store: parameters without elements, a store without parameters") {
    ht::host_memory memory;
    store s(memory);
    const auto none = s.add<ht::amp_bf16, ht::op::linear>("none", ht::shape<2>{0, 4}, {.deviation = 1});
    s.commit();
    CHECK(none.values().size() == 0);
    CHECK(s.freeze("none") == 1);
    store empty(memory);
    empty.commit();
    empty.refresh();
    CHECK(empty.size() == 0);
    CHECK(empty.bytes() == 0);
}

TEST_CASE("store: too little memory for the parameters, then enough") {
    ht::host_memory small(1024);
    store s(small);
    s.add<ht::amp_bf16, ht::op::linear>("weight", ht::shape<1>{4096}, {});
    CHECK_THROWS_AS(s.commit(), ht::out_of_memory);
    CHECK(!s.is_committed());
    CHECK(small.usage().live() == 0);
}

TEST_CASE("store: assigning a parameter from the host sets master and copy") {
    struct host {
        ht::host_memory& memory() { return memory_; }
        ht::host_memory memory_{};
    } device;
    assign_checks::masters_and_copies(device);
}

}  // namespace memory_store_tests
