// SPDX-License-Identifier: MIT
/// \file
/// Rung 3: all parts of a mixed-precision training loop (device, model, optimizer, loss scaler, accumulator, tape),
/// which the
/// program puts together itself:
///
///     ht::cpu device;
///     ht::nn::gpt<ht::amp_fp16> model{device, config};
///     ht::adamw optimizer{device, model, {.lr = 3e-4f, .weight_decay = 0.1f}, {{"*.norm", {.weight_decay = 0.0f}}}};
///     ht::grad_scaler scaler{device};
///     ht::accumulator acc{model};
///     ht::tape tape{device};
///     for (const auto& batch : loader) {
///         tape.backward(scaler.scale(model.loss(tape, batch)), acc);
///         auto grads = scaler.unscale(acc.take());
///         ht::clip_grad_norm(grads, 1.0f);
///         optimizer.step(grads);
///         scaler.update();
///     }
#pragma once

#include <halftone/autodiff/op/apply.hpp>
#include <halftone/autodiff/op/axis_reduction.hpp>
#include <halftone/autodiff/op/checkpoint.hpp>
#include <halftone/autodiff/op/conv2d.hpp>
#include <halftone/autodiff/op/cross_entropy.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/autodiff/op/full.hpp>
#include <halftone/autodiff/op/gather.hpp>
#include <halftone/autodiff/op/gated.hpp>
#include <halftone/autodiff/op/join.hpp>
#include <halftone/autodiff/op/mask.hpp>
#include <halftone/autodiff/op/matmul.hpp>
#include <halftone/autodiff/op/modified_attention.hpp>
#include <halftone/autodiff/op/pointwise.hpp>
#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/autodiff/op/sampling.hpp>
#include <halftone/autodiff/op/rotary.hpp>
#include <halftone/autodiff/op/shapes.hpp>
#include <halftone/autodiff/op/softmax.hpp>
#include <halftone/autodiff/op/channel_norm.hpp>
#include <halftone/autodiff/op/pooling.hpp>
#include <halftone/kernel.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/optim/adafactor.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/adamw_8bit.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/optim/lion.hpp>
#include <halftone/optim/lion_8bit.hpp>
#include <halftone/optim/muon.hpp>
#include <halftone/optim/schedule.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/optim/sgd_8bit.hpp>
#include <halftone/scale/accumulator.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/scale/outlier_guard.hpp>
#include <halftone/scale/static_scaler.hpp>
#if defined(HALFTONE_COMPILED) && !defined(HALFTONE_OWN_CATEGORIES)
#include <halftone/compiled/models.hpp>
#endif
