// SPDX-License-Identifier: MIT
/// \file
/// A list of blocks of the same kind, each with its own parameters; their number is known at run time.
///
///     ht::nn::stack<block, P, "h"> h{store, depth, config};     // block<at<at<P, "h">, "*">>, constructed as {store, config}
///     ht::nn::stack<block, P, "h"> h{store, depth, [](int i) { return sizes_of(i); }};  // block i as {store, sizes_of(i)}
///     x = h(ctx, x);                                         // calls all blocks, one after another
///     auto y = h[2](ctx, x);                                 // calls one block, for example one of several experts
///
/// A recipe's rules may match single blocks, "h.0" or "h.last", which then have separate types. All blocks must return
/// the type that they take. In the store the blocks' paths are "h.0", "h.1", … under every recipe, also for the last
/// one.
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include <halftone/autodiff/engine/operation.hpp>
#include <halftone/autodiff/engine/unit_scope.hpp>
#include <halftone/autodiff/op/checkpoint.hpp>
#include <halftone/policy/repeat.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

namespace detail {

template <template <class> class Block, class List, class Indices>
struct stack_types;
template <template <class> class Block, class List, int... Index>
struct stack_types<Block, List, indices<Index...>> {
    using common = Block<at<List, "*">>;
    using special = std::tuple<std::optional<Block<at<List, halftone::detail::index_name(Index)>>>...>;
    using all = types<common, Block<at<List, halftone::detail::index_name(Index)>>...>;
};

}  // namespace detail

/// Blocks 0 to depth - 1, called one after another, each with its own parameters.
template <template <class> class Block, class P, path_name Name>
class stack {
    using named = typename halftone::detail::classes_of<P, Name>::type;
    using list = detail::stack_types<Block, at<P, Name>, named>;

  public:
    using children = typename list::all;

    /// `depth` blocks, each constructed as Block{s, arguments…}; of an argument that is a function of an int, block i is
    /// given the value for i. Throws argument_error for a negative depth.
    template <class... Arguments>
    stack(store& s, int depth, const Arguments&... arguments) : depth_(depth), store_(&s) {
        if (depth < 0) fail<argument_error>("stack: a depth of ", depth, "; expected 0 or more");
        for (int i = 0; i < depth; ++i) make(s, i, std::make_index_sequence<named::size>{}, arguments...);
    }

    /// The number of blocks.
    int depth() const { return depth_; }

    /// From now on every n-th block, beginning with the first, stores only its input for the backward pass
    /// (autodiff/op/checkpoint.hpp); 0: none. Throws argument_error for a negative number.
    void checkpoint_every(int n) {
        if (n < 0) fail<argument_error>("stack: a checkpoint every ", n, " blocks; expected 1 or more, or 0 for none");
        checkpoint_where([n](int i) { return n != 0 && i % n == 0; });
    }
    /// From now on the blocks whose index i satisfies chosen(i), and no others, store only their input for the backward
    /// pass. The first blocks save the most memory: their values are recomputed after those of later blocks have been
    /// freed.
    template <class Chosen>
    void checkpoint_where(const Chosen& chosen) {
        checkpointed_.assign(static_cast<std::size_t>(depth_), false);
        for (int i = 0; i < depth_; ++i) checkpointed_[static_cast<std::size_t>(i)] = chosen(i);
    }

    /// Calls f(block) for every block, in the order in which they run.
    template <class F>
    void each(F&& f) const {
        std::size_t next = 0;
        for (int i = 0; i < depth_; ++i) {
            const std::size_t kind = named::class_of(i, depth_);
            if (kind == named::size) {
                f(common_[next++]);
            } else {
                visit_special(f, kind, std::make_index_sequence<named::size>{});
            }
        }
    }

    /// Passes further arguments to every block.
    template <class Context, class X, class... More>
    X operator()(Context&& ctx, X x, const More&... more) const;

    /// One block, to be called by itself: experts[i](ctx, x). All blocks that rules match must return the same type.
    /// Throws argument_error for an index out of range.
    auto operator[](int i) const {
        if (i < 0 || i >= depth_) fail<argument_error>("stack: block ", i, " of ", depth_, "; expected 0 to ", depth_ - 1);
        return single{this, i};
    }

  private:
    /// Where a block's parameters are.
    struct unit_place {
        const store* owner;
        std::size_t first;
    };
    struct single {
        const stack* list;
        int i;
        template <class Context, class... Inputs>
        auto operator()(Context&& ctx, const Inputs&... inputs) const {
            [[maybe_unused]] const auto here = halftone::detail::within_list<at<P, Name>>(ctx.root(), i);
            halftone::detail::unit_scope unit(ctx.root(), *list->store_, list->first_entry(i));
            auto y = list->call_single(ctx, i, std::make_index_sequence<named::size>{}, inputs...);
            unit.finish();
            return y;
        }
    };

    template <class Argument>
    static decltype(auto) argument_of([[maybe_unused]] int i, const Argument& argument) {
        if constexpr (std::is_invocable_v<const Argument&, int>) {
            return argument(i);
        } else {
            return (argument);
        }
    }
    template <std::size_t... I, class... Arguments>
    void make(store& s, int i, std::index_sequence<I...>, const Arguments&... arguments) {
        const std::size_t kind = named::class_of(i, depth_);
        const store::indexed here(s, position, i);
        entries_.push_back(s.entries().size());
        if (kind == named::size) {
            common_.emplace_back(s, argument_of(i, arguments)...);
        } else {
            (static_cast<void>(kind == I ? (std::get<I>(special_).emplace(s, argument_of(i, arguments)...), 0) : 0), ...);
        }
        if (s.entries().size() == entries_.back()) entries_.back() = store::nowhere;
    }
    /// The first parameter of a block, by its index in the store; `nowhere` if it has none.
    std::size_t first_entry(int i) const { return entries_[static_cast<std::size_t>(i)]; }
    template <class Context, class X, std::size_t... I, class... More>
    void call_special(Context&& ctx, [[maybe_unused]] int i, std::size_t kind, X& x, std::index_sequence<I...>,
                      const More&... more) const {
        (static_cast<void>(kind == I ? (x = run(ctx, i, *std::get<I>(special_), std::move(x), more...), 0) : 0), ...);
    }
    template <class Context, class B, class X, class... More>
    X run(Context&& ctx, int i, const B& block, X x, const More&... more) const {
        const unit_place unit{store_, first_entry(i)};
        if (!is_checkpointed(i)) return call(ctx, i, unit, block, std::move(x), more...);
        if constexpr (halftone::detail::records_double_backward<Context>) {
            fail<argument_error>("stack: block ", i,
                                 " has a checkpoint, and a tape for second derivatives needs all values; "
                                 "checkpoint_every(0) removes all checkpoints");
        } else {
            auto again = [&block, i, unit](auto&& c, const X& y, const More&... rest) {
                return call(c, i, unit, block, y, rest...);
            };
            return halftone::checkpoint(ctx, std::move(again), x, more...);
        }
    }
    template <class Context, std::size_t... I, class... Inputs>
    auto call_single(Context&& ctx, int index, std::index_sequence<I...>, const Inputs&... inputs) const {
        using Y = decltype(common_[0](ctx, inputs...));
        const std::size_t kind = named::class_of(index, depth_);
        std::size_t among_common = 0;
        for (int i = 0; i < index; ++i) among_common += named::class_of(i, depth_) == named::size ? 1 : 0;
        if (kind == named::size) return common_[among_common](ctx, inputs...);
        static_assert((std::is_same_v<decltype((*std::get<I>(special_))(ctx, inputs...)), Y> && ...),
                      "halftone: blocks of a list that are called by their index return the same type; see `output` of the "
                      "policies of those that rules match");
        std::optional<Y> y;
        (static_cast<void>(kind == I ? (y.emplace((*std::get<I>(special_))(ctx, inputs...)), 0) : 0), ...);
        return *std::move(y);
    }
    template <class F, std::size_t... I>
    void visit_special(F& f, std::size_t kind, std::index_sequence<I...>) const {
        (static_cast<void>(kind == I ? (f(*std::get<I>(special_)), 0) : 0), ...);
    }
    bool is_checkpointed(int i) const {
        return !checkpointed_.empty() && checkpointed_[static_cast<std::size_t>(i)];
    }
    template <class Context, class B, class X, class... More>
    static X call(Context&& ctx, int i, const unit_place& place, const B& block, X x, const More&... more) {
        static_assert(std::is_same_v<decltype(block(ctx, x, more...)), X>,
                      "halftone: a repeated block must return the type that it takes, the residual stream's; see "
                      "`output` of its policy");
        [[maybe_unused]] const auto here = halftone::detail::within_list<at<P, Name>>(ctx.root(), i);
        halftone::detail::unit_scope unit(ctx.root(), *place.owner, place.first);
        X y = block(ctx, std::move(x), more...);
        unit.finish();
        return y;
    }

    // The component of a block's path that is its index.
    static constexpr int position = [] {
        const auto path = path_of<at<P, Name>>.text();
        int dots = 0;
        for (const char c : path.data) dots += c == '.' ? 1 : 0;
        return dots + 1;
    }();

    int depth_;
    const store* store_;
    std::vector<std::size_t> entries_;  // by block: first_entry()
    std::vector<bool> checkpointed_;  // by block; empty: none
    std::vector<typename list::common> common_;
    typename list::special special_;
};

// Not `inline`, so that its instantiations can be in halftone::compiled, which then also has those of the block.
template <template <class> class Block, class P, path_name Name>
template <class Context, class X, class... More>
X stack<Block, P, Name>::operator()(Context&& ctx, X x, const More&... more) const {
    std::size_t next = 0;
    for (int i = 0; i < depth_; ++i) {
        const std::size_t kind = named::class_of(i, depth_);
        if (kind == named::size) {
            x = run(ctx, i, common_[next++], std::move(x), more...);
        } else {
            call_special(ctx, i, kind, x, std::make_index_sequence<named::size>{}, more...);
        }
    }
    return x;
}

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
