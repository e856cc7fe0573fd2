// SPDX-License-Identifier: MIT
/// \file
/// Operations on tensors with an extent of 0, forward and backward, on any device: results are PyTorch's. A product with k = 0
/// is 0, so that a linear layer without inputs returns its bias; a sum of no elements is 0, a mean of no elements NaN.
#pragma once

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/nn/norm.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "support/gradient_sink.hpp"

namespace empty_checks {

namespace ht = halftone;
using ht::extent;
using ht::shape;

/// The numbers 1, 2, 3, … of a shape, in the device's memory.
template <class T, class Device, int Rank>
ht::tensor<T, Rank> counted(Device& device, const shape<Rank>& s) {
    ht::host_tensor<T, Rank> values(s);
    for (extent i = 0; i < values.size(); ++i) values.data()[i] = T(static_cast<float>(i + 1));
    return ht::to_device(device, values);
}

/// The values, as floats.
template <class Device, class Source>
std::vector<float> read(Device& device, const Source& source) {
    std::vector<float> all;
    for (const auto& v : ht::to_host(device, source)) all.push_back(static_cast<float>(v));
    return all;
}
using floats = std::vector<float>;

/// y = x wᵀ + b with `rows` rows, `in` inputs, `out` outputs: 0 of any of them.
template <class T, class Device>
void linear(Device& device, extent rows, extent in, extent out) {
    CAPTURE(rows);
    CAPTURE(in);
    CAPTURE(out);
    ht::tape tape{device};
    const auto x_values = counted<T>(device, shape<3>{1, rows, in});
    const auto w_values = counted<T>(device, shape<2>{out, in});
    const auto b_values = counted<T>(device, shape<1>{out});
    const auto x = tape.leaf(x_values.view());
    const auto w = tape.leaf(w_values.view());
    const auto b = tape.leaf(b_values.view());
    const auto y = ht::linear(tape, x, w, b);
    CHECK(y.shape() == shape<3>{1, rows, out});
    const auto got = read(device, y);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == static_cast<float>(i % b.size() + 1));
    tape.backward(ht::sum(tape, y));
    CHECK(read(device, tape.gradient(x)) ==
          floats(static_cast<std::size_t>(rows * in), static_cast<float>(out * (out + 1) / 2)));
    CHECK(read(device, tape.gradient(w)) == floats(static_cast<std::size_t>(out * in), 0.0f));
    CHECK(read(device, tape.gradient(b)) == floats(static_cast<std::size_t>(out), static_cast<float>(rows)));
}

/// (b, m, k) times (b, k, n).
template <class T, class Device>
void matmul(Device& device, extent b, extent m, extent k, extent n) {
    CAPTURE(b);
    CAPTURE(m);
    CAPTURE(k);
    CAPTURE(n);
    ht::tape tape{device};
    const auto left = counted<T>(device, shape<3>{b, m, k}), right = counted<T>(device, shape<3>{b, k, n});
    const auto x = tape.leaf(left.view()), y = tape.leaf(right.view());
    const auto z = ht::matmul(tape, x, y);
    CHECK(z.shape() == shape<3>{b, m, n});
    for (const float v : read(device, z)) CHECK(v == 0.0f);
    tape.backward(ht::sum(tape, z));
    for (const float v : read(device, tape.gradient(x))) CHECK(v == 0.0f);
    for (const float v : read(device, tape.gradient(y))) CHECK(v == 0.0f);
    CHECK(tape.gradient(x).shape() == x.shape());
    CHECK(tape.gradient(y).shape() == y.shape());
}

template <class Device>
bool is_nan_of(Device& device, const auto& scalar) {
    const auto all = ht::to_host(device, scalar);
    return all.size() == 1 && ht::is_nan(all.data()[0]);
}

/// Rows of no columns, and no rows, through operations by rows and by elements.
template <class T, class Device>
void rows(Device& device, extent rows, extent columns) {
    CAPTURE(rows);
    CAPTURE(columns);
    ht::tape tape{device};
    const auto values = counted<T>(device, shape<2>{rows, columns});
    const auto x = tape.leaf(values.view());
    const auto one_row = counted<T>(device, shape<1>{columns});
    const auto r = tape.leaf(one_row.view());
    const auto y = ht::softmax(tape, ht::gelu(tape, ht::add(tape, x, r)));
    const auto z = ht::log_softmax(tape, ht::dropout(tape, ht::mul(tape, x, r), {0.5f}));
    const auto joined = ht::cat(tape, 0, y, z), stacked = ht::stack(tape, 1, y, z);
    CHECK(joined.shape() == shape<2>{2 * rows, columns});
    CHECK(stacked.shape() == shape<3>{rows, 2, columns});
    const auto again = ht::reshape(tape, stacked, shape<2>{2 * rows, columns});
    const auto total = ht::sum(tape, ht::add(tape, joined, again));
    CHECK(read(device, total) == floats{0.0f});
    CHECK(is_nan_of(device, ht::mean(tape, x)));
    CHECK(is_nan_of(device, ht::mean_squared_error(tape, x, y)));
    CHECK(is_nan_of(device, ht::l1_loss(tape, x, z)));
    CHECK(read(device, ht::dot(tape, x, x)) == floats{0.0f});
    CHECK(read(device, ht::norm(tape, x)) == floats{0.0f});
    tape.backward(total);
    CHECK(tape.gradient(x).shape() == shape<2>{rows, columns});
    CHECK(read(device, tape.gradient(r)) == floats(static_cast<std::size_t>(columns), 0.0f));
}

/// A layer norm and an rms norm of a model, of no rows or of no columns.
template <class P, class Device>
void norms(Device& device, extent rows, extent columns) {
    CAPTURE(rows);
    CAPTURE(columns);
    ht::store parameters{device.memory()};
    const ht::nn::layer_norm<ht::at<P, "a">> a(parameters, columns);
    const ht::nn::rms_norm<ht::at<P, "b">> b(parameters, columns);
    parameters.commit();
    ht::tape tape{device};
    const auto values = counted<float>(device, shape<2>{rows, columns});
    const auto x = tape.leaf(values.view());
    const auto y = b(tape, a(tape, x));
    CHECK(y.shape() == shape<2>{rows, columns});
    support::gradient_sink acc{parameters};
    tape.backward(ht::sum(tape, y), acc);
    CHECK(tape.gradient(x).shape() == x.shape());
    CHECK(acc.entry(0) == floats(static_cast<std::size_t>(columns), 0.0f));
    CHECK(acc.entry(2) == floats(static_cast<std::size_t>(columns), 0.0f));
}

/// A loss of no rows: NaN, as a mean of none is.
template <class T, class Device>
void losses(Device& device) {
    ht::tape tape{device};
    const auto values = counted<T>(device, shape<2>{0, 5});
    const auto x = tape.leaf(values.view());
    const std::vector<std::int32_t> none;
    const auto loss = ht::cross_entropy(tape, x, ht::const_view<std::int32_t, 1>(none.data(), {0}));
    CHECK(is_nan_of(device, loss));
    tape.backward(loss);
    CHECK(tape.gradient(x).shape() == shape<2>{0, 5});
}

template <class Device>
void all(Device& device) {
    for (const extent rows : {0, 2}) {
        for (const extent in : {0, 3}) {
            for (const extent out : {0, 4}) {
                if (rows * in * out != 0) continue;
                linear<float>(device, rows, in, out);
                linear<ht::bfloat16>(device, rows, in, out);
                linear<ht::float16>(device, rows, in, out);
                linear<double>(device, rows, in, out);
            }
        }
    }
    for (const int empty : {0, 1, 2, 3}) {
        const auto extent_of = [empty](int axis, extent n) { return axis == empty ? extent{0} : n; };
        matmul<float>(device, extent_of(0, 2), extent_of(1, 3), extent_of(2, 4), extent_of(3, 5));
        matmul<ht::bfloat16>(device, extent_of(0, 2), extent_of(1, 3), extent_of(2, 4), extent_of(3, 5));
        matmul<double>(device, extent_of(0, 2), extent_of(1, 3), extent_of(2, 4), extent_of(3, 5));
    }
    for (const auto& s : {shape<2>{0, 5}, shape<2>{3, 0}, shape<2>{0, 0}}) {
        rows<float>(device, s[0], s[1]);
        rows<ht::bfloat16>(device, s[0], s[1]);
        rows<double>(device, s[0], s[1]);
        norms<ht::full_fp32>(device, s[0], s[1]);
        norms<ht::amp_bf16>(device, s[0], s[1]);
    }
    losses<float>(device);
    losses<ht::bfloat16>(device);
    losses<double>(device);
}

}  // namespace empty_checks
