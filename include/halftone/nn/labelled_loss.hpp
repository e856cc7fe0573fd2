// SPDX-License-Identifier: MIT
/// \file
/// What classifiers share: the check that a batch has a label for each input, and the loss of a model of images.
#pragma once

#include <cstdint>

#include <halftone/autodiff/op/loss.hpp>
#include <halftone/error.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Throws shape_error unless `values` (labels, say) has one element for each of the inputs along their first axis.
template <class T, int Rank>
void expect_one_each(const char* model, const char* inputs, const const_view<T, Rank>& x, const char* values,
                     const const_view<std::int32_t, 1>& y) {
    if (y.extent_of(0) != x.extent_of(0))
        fail<shape_error>(model, ": ", inputs, " are ", x.shape(), ", ", values, " ", y.shape());
}

/// The mean cross-entropy of model.logits(ctx, batch.images) for batch.labels; `name` begins the errors' sentences.
template <class Context, class Model, class Batch>
auto image_loss(Context&& ctx, const char* name, const Model& model, const Batch& batch) {
    const const_view<float, 4> images = batch.images;
    const const_view<std::int32_t, 1> labels = batch.labels;
    expect_one_each(name, "images", images, "labels", labels);
    return halftone::cross_entropy(ctx, model.logits(ctx, images), labels);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
