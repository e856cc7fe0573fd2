// SPDX-License-Identifier: MIT
/// \file
/// The low-rank adapter of a linear layer (LoRA, Hu et al. 2021): scale B A x, which is added in the epilogue of the layer's own
/// product. Linear layers with a policy ht::lora make it themselves, where ht::add_adapters chooses them (memory/adapters.hpp).
///
///     detail::low_rank_of<P> adapter{store, weight, {{"q", rows}, {"k", rows}, {"v", rows}}};
///     if (adapter.is_there()) y = linear<roles>(ctx, x, weight, bias, adapter.add_to<T>(ctx, x, residual));
///
/// Numeric contract: both products as those of linear layers, by the adapter's policy; A x is rounded to that policy's `output`
/// before and after it is multiplied by the scale, and B A x, with the residual if there is one, to the type that the layer's
/// product adds.
#pragma once

#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include <halftone/autodiff/op/dropout.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/full.hpp>
#include <halftone/autodiff/op/join.hpp>
#include <halftone/autodiff/op/linear.hpp>
#include <halftone/autodiff/op/shapes.hpp>
#include <halftone/policy/lora.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// Consecutive rows of a linear layer's weight that are a product of their own: q_proj in a product of queries, keys and values.
struct row_block {
    const char* name;
    extent rows;
};

/// The adapter of a linear layer with policy P. Its path is the layer's.
template <class P>
class low_rank {
  public:
    using policy = halftone::detail::adapter_policy<P>;
    using operation = op::linear;
    static constexpr bool owns_parameters = true;
    static constexpr bool is_adapter = true;  // policy/ledger.hpp
    using matrix = parameter<storage_signature<policy, operation>, 2>;

    /// For a weight (out, in). `blocks` are its rows if those have adapters of their own.
    template <class Storage>
    low_rank(store& s, const parameter<Storage, 2>& weight, std::initializer_list<row_block> blocks) {
        const extent out = weight.shape()[0], in = weight.shape()[1];
        if (blocks.size() == 0) add_block(s, {"", out});
        for (const row_block& each : blocks) add_block(s, each);
        if (rank_ == 0) return;
        dropout_ = s.adapters().options()->dropout;
        a_ = s.add_adapter<policy, operation>("lora_A", shape<2>{rank_, in},
                                              {.bound = in > 0 ? 1.0f / std::sqrt(static_cast<float>(in)) : 0.0f});
        extent row = 0, rank = 0;
        for (block& each : blocks_) {
            if (each.rank != 0) {
                const std::string leaf = std::string(each.name) + (*each.name == 0 ? "" : ".") + "lora_B";
                each.b = s.add_adapter<policy, operation>(leaf.c_str(), shape<2>{each.rows, each.rank}, {});
                s.adapters().add({s.layer_path<policy>(each.name), weight.entry(), a_.entry(), each.b.entry(), row,
                                  each.rows, rank, each.rank, each.scale});
            }
            row += each.rows, rank += each.rank;
        }
    }

    /// Whether the layer has an adapter now: not if the options did not choose it, and not after ht::merge_adapters.
    bool is_there() const { return rank_ != 0 && a_.owner().adapters().are_in_use(); }

    /// A of all blocks, one behind the other: (ranks, in).
    const matrix& a() const { return a_; }

    /// scale B A x + residual, for x (…, in): (…, out), in the residual's type or, if that is `absent`, in T. Throws shape_error.
    template <class T, class Context, class X, int Rank, class Residual>
    auto add_to(Context&& ctx, const variable<X, Rank>& x, const Residual& residual) const {
        const auto inner = times_a(ctx, x);
        if (blocks_.size() == 1) return times_b<T>(ctx, inner, blocks_[0], residual);
        extent rank = 0;
        std::vector<variable<T, Rank>> parts;
        for (const block& each : blocks_) {
            if (each.rank == 0) {
                parts.push_back(full<T>(ctx, halftone::detail::with_last(x.shape(), each.rows), 0));
            } else {
                const auto own = slice(ctx, inner, axes<Rank - 1>, rank, rank + each.rank);
                parts.push_back(times_b<T>(ctx, own, each, absent{}));
            }
            rank += each.rank;
        }
        auto all = cat(ctx, axes<Rank - 1>, parts);
        if constexpr (is_absent<Residual>) {
            return all;
        } else {
            return cast<typename Residual::value_type>(ctx, add(ctx, all, residual));
        }
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }

  private:
    struct block {
        const char* name;
        extent rows, rank;
        double scale;
        matrix b;
    };

    /// Adds a block, of rank 0 if it has no adapter.
    void add_block(store& s, const row_block& rows) {
        const auto chosen = s.adapters().chosen(s.layer_path<policy>(rows.name));
        blocks_.push_back({rows.name, rows.rows, chosen ? chosen->rank : 0, chosen ? chosen->scale : 0, {}});
        rank_ += blocks_.back().rank;
    }
    template <class Context, class X>
    using roles = layer_roles<policy, operation, Context, X>;

    /// A x, with dropout of x while training.
    template <class Context, class X, int Rank>
    auto times_a(Context&& ctx, const variable<X, Rank>& x) const {
        halftone::detail::check_layer_dropout<Context>("low_rank", dropout_);
        if constexpr (std::remove_cvref_t<Context>::records) {
            if (dropout_ != 0)
                return halftone::linear<roles<Context, X>>(ctx, cast<X>(ctx, dropout(ctx, x, {dropout_})), a_,
                                                           absent{});
        }
        return halftone::linear<roles<Context, X>>(ctx, x, a_, absent{});
    }
    /// scale B u + residual.
    template <class T, class Context, class U, int Rank, class Residual>
    static auto times_b(Context&& ctx, const variable<U, Rank>& u, const block& of, const Residual& residual) {
        const auto scaled = of.scale == 1 ? u : cast<U>(ctx, mul(ctx, u, of.scale));
        if constexpr (is_absent<Residual>) {
            return cast<T>(ctx, halftone::linear<roles<Context, U>>(ctx, scaled, of.b, absent{}));
        } else {
            return halftone::linear<roles<Context, U>>(ctx, scaled, of.b, absent{}, residual);
        }
    }

    extent rank_ = 0;  // of all blocks together
    float dropout_ = 0;
    matrix a_{};
    std::vector<block> blocks_{};
};

}  // namespace nn

namespace detail {

/// In place of the adapter of a layer that cannot have one.
struct no_low_rank {
    template <class Weight>
    no_low_rank(store&, const Weight&, std::initializer_list<nn::row_block>) {}
};
template <class P>
struct low_rank_type {
    using type = no_low_rank;
};
template <adapted P>
struct low_rank_type<P> {
    using type = nn::low_rank<P>;
};
/// The adapter of a linear layer with policy P, or nothing.
template <class P>
using low_rank_of = typename low_rank_type<P>::type;

/// A linear layer's product, with its adapter where it has one. `Layer` has policy, operation, weight and adapter.
template <class Layer, class Context, class X, int Rank, class Bias, class Residual>
auto linear_with_adapter(const Layer& layer, Context&& ctx, const variable<X, Rank>& x, const Bias& bias,
                         const Residual& residual) {
    using roles = layer_roles<typename Layer::policy, typename Layer::operation, Context, X>;
    if constexpr (adapted<typename Layer::policy>) {
        if (layer.adapter.is_there()) {
            return halftone::linear<roles>(ctx, x, layer.weight, bias,
                                           layer.adapter.template add_to<typename roles::output>(ctx, x, residual));
        }
    }
    return halftone::linear<roles>(ctx, x, layer.weight, bias, residual);
}

/// visit() of a linear layer: passes the adapter, where it can have one.
template <class Layer>
decltype(auto) visit_adapter(Layer&& layer, auto&& f) {
    if constexpr (adapted<typename std::remove_cvref_t<Layer>::policy>) {
        return f(layer.adapter);
    } else {
        static_cast<void>(layer);
        return f();
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
