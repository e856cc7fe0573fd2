// SPDX-License-Identifier: MIT
/// \file
/// A model of three small matrices with biases, for optimizers that treat matrices and vectors differently; small_model.hpp has
/// the tape.
///
///     small::matrix_net<ht::amp_fp16> model{device};
#pragma once

#include "optim/small_model.hpp"

namespace small {

template <class P>
struct matrix_layer {
    using policy = P;
    using operation = ht::op::linear;
    static constexpr bool owns_parameters = true;
    ht::parameter<ht::storage_signature<P, operation>, 2> weight;
    ht::parameter<ht::storage_signature<P, operation>, 1> bias;

    matrix_layer(ht::store& s, ht::extent rows, ht::extent columns)
        : weight(s.add<P, operation>("weight", ht::shape<2>{rows, columns}, {.deviation = 0.5f})),
          bias(s.add<P, operation>("bias", ht::shape<1>{rows}, {.deviation = 0.5f})) {}
};

/// Entries: wide.weight, wide.bias, tall.weight, tall.bias, head.weight, head.bias.
template <class P>
struct matrix_net : ht::nn::model {
    using policy = P;
    matrix_layer<ht::at<P, "wide">> wide;
    matrix_layer<ht::at<P, "tall">> tall;
    matrix_layer<ht::at<P, "head">> head;

    template <class Device>
    explicit matrix_net(Device& device)
        : ht::nn::model(device), wide(parameters(), 7, 13), tall(parameters(), 13, 7), head(parameters(), 3, 5) {
        commit(*this, 1);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.wide, self.tall, self.head); }
};

/// The numbers of the golden files of matrices: element i of a parameter, and of its gradient in step t.
inline double initial_parameter(int i) { return ((31 * i) % 65 - 32) / 64.0; }
inline double gradient(int i, int t) { return ((7919 * t + 104729 * i + 31 * i * i + 17 * t * i) % 2049 - 1024) / 1024.0; }

template <class Storage, int Rank>
void assign_initial(const ht::parameter<Storage, Rank>& parameter, int first) {
    using param = typename Storage::param;
    std::vector<param> values;
    for (ht::extent i = 0; i < parameter.shape().size(); ++i)
        values.push_back(param(static_cast<float>(initial_parameter(first + static_cast<int>(i)))));
    parameter.assign(values);
}

}  // namespace small
