// SPDX-License-Identifier: MIT
/// \file
/// Gradient buffers in which the gradients of several micro-batches are added, in the policies' `accumulate` type.
///
///     ht::accumulator acc{model};                          // or several models: acc{generator, critic}
///     for (const auto& micro : batch.split(4))
///         tape.backward(scaler.scale(model.loss(tape, micro) * ht::share_of(tape, micro, batch)), acc);
///     auto grads = scaler.unscale(acc.take());             // ends the window; the next backward pass begins a new one
///
///     ht::accumulator acc{model, ht::unscaled};            // for losses that no scaler scales
///     auto grads = acc.take();
///
/// Numeric contract: one rounding to `accumulate` for each micro-batch; gradients are added in the order of the
/// backward passes.
#pragma once

#include <algorithm>
#include <optional>

#include <halftone/autodiff/engine/rank_loss.hpp>
#include <halftone/memory/capture_dependency.hpp>
#include <halftone/scale/gradients.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The kind of an accumulator for losses that are not scaled.
struct unscaled_t {};
/// Written as ht::accumulator acc{model, ht::unscaled}.
inline constexpr unscaled_t unscaled{};

/// The kind of an accumulator for losses that a scaler has scaled.
struct through_scaler {};

namespace detail {

// For ht::accumulator{a, b, ht::unscaled}: several models, with the kind at the end.
template <class... Args>
struct accumulator_arguments {
    template <class T>
    using model =
        std::conditional_t<std::is_same_v<std::remove_cvref_t<T>, unscaled_t>, types<>, types<std::remove_cvref_t<T>>>;
    using models = detail::concatenate_t<model<Args>...>;
    using kind =
        std::conditional_t<(std::is_same_v<std::remove_cvref_t<Args>, unscaled_t> || ...), unscaled_t, through_scaler>;
};

template <class Model, class Storages>
struct key_set;
template <class Model, class... Storages>
struct key_set<Model, types<Storages...>> {
    static bool has(const void* key) { return ((key == store::key_of<Storages>()) || ...); }
};

/// Throws argument_error if the store of a model holds parameters that the model's visit does not pass, since these
/// would be missing in every norm and step.
template <class Model>
void check_visited(const char* operation, const store& parameters) {
    for (const store::entry& e : parameters.entries()) {
        const store::group& g = parameters.groups()[e.group];
        expect_frozen_codes(operation, e, g);
        if (key_set<Model, signatures_of<Model>>::has(g.key)) continue;
        fail<argument_error>(operation, ": ", e.path,
                             " is stored in types that no layer of the model's visit has; let visit show every layer");
    }
}

/// Whether gradients are overwritten or added is decided on the host, by whether the window has begun. So work captured
/// between windows cannot be replayed inside of one, nor work of one window in another.
class window_dependency final : public detail::capture_dependency {
  public:
    explicit window_dependency(memory_resource& memory)
        : detail::capture_dependency(&memory.capture_dependencies(),
                                     "a window of gradients is open that was not, or the other way round"),
          closed_(number()) {}
    void open() { change(); }
    void close() { restore(closed_); }

  private:
    std::uint64_t closed_;
};

}  // namespace detail

template <class Kind, class Models>
class accumulator;

template <class... Args>
accumulator(Args&&...) -> accumulator<typename detail::accumulator_arguments<Args...>::kind,
                                      typename detail::accumulator_arguments<Args...>::models>;

/// Kind is through_scaler or unscaled_t, Models a types<...>. The models' stores must outlive it.
template <class Kind, class... Models>
class accumulator<Kind, types<Models...>> {
  public:
    using gradients_type = gradients<void, types<Models...>>;
    static constexpr bool takes_scaled = std::is_same_v<Kind, through_scaler>;

    /// Allocates the gradients of all parameters that are not frozen. Throws state_error before the stores' commit,
    /// argument_error for two models with the same store, and out_of_memory.
    explicit accumulator(Models&... models) requires(takes_scaled) { make(models...); }
    explicit accumulator(Models&... models, unscaled_t) requires(!takes_scaled) { make(models...); }
    accumulator(const accumulator&) = delete;
    accumulator& operator=(const accumulator&) = delete;
    ~accumulator() { window_.clock->is_gone = true; }

    /// Called by a tape at the beginning of a backward pass. Throws state_error if the loss has another scale than the
    /// micro-batches before it in this window.
    template <class Loss>
    accumulator& receive(const Loss& loss) {
        static_assert(is_scaled<Loss> || !takes_scaled,
                      "halftone: accumulator: this loss is not scaled, and the accumulator expects scaled ones: write "
                      "tape.backward(scaler.scale(loss), acc), or declare ht::accumulator acc{model, ht::unscaled}");
        static_assert(!is_scaled<Loss> || takes_scaled,
                      "halftone: accumulator: this loss is scaled, and the accumulator was declared with ht::unscaled: "
                      "declare ht::accumulator acc{model}, whose take() a scaler unscales");
        if constexpr (is_scaled<Loss>) {
            begin_pass(loss.value());
            open(loss.stamp());
        } else {
            begin_pass(loss);
            open({});
        }
        return *this;
    }
    /// The slabs of a store's gradients; nullptr if no model of this accumulator has that store.
    gradient_slabs* find(const store& owner) {
        const std::size_t part = window_.find(owner);
        return part == detail::window::nowhere ? nullptr : &window_.parts[part].slabs;
    }

    /// Treats this model's parameters as constants in losses that depend on them: gradients flow through its layers,
    /// but none are computed for its parameters. So a generator's loss can go through the critic, which is trained by
    /// another loss. Throws argument_error for a model of this accumulator.
    template <class Model>
    void leave_out(const Model& model) {
        const store& parameters = model.parameters();
        if (find(parameters) != nullptr)
            fail<argument_error>("accumulator: leave_out() of a model whose gradients it gathers");
        if (!leaves_out(parameters)) left_out_.push_back(&parameters);
    }
    /// Whether leave_out() was called for a model with this store.
    bool leaves_out(const store& owner) const {
        return std::find(left_out_.begin(), left_out_.end(), &owner) != left_out_.end();
    }

    /// Ends the window and returns its gradients: scaled<gradients<...>>, or plain gradients if the accumulator is
    /// ht::unscaled. Throws state_error if no backward pass has run since the last take().
    auto take() {
        if (!window_.is_open) fail<state_error>("accumulator: take() without a backward pass since the last take()");
        close();
        for (detail::window::part& p : window_.parts) {
            if (auto* const sharding = p.slabs.owner().sharding()) sharding->reduce(p.slabs);
        }
        if (listener_ != nullptr) listener_->end_window();
        if constexpr (takes_scaled) {
            return scaled<gradients_type>(gradients_type(window_, nullptr), nullptr, window_.stamp);
        } else {
            return gradients_type(window_, nullptr);
        }
    }
    /// Ends the window and discards its gradients, and the amaxes of delayed scaling: after an exception within the
    /// window, or if its micro-batches turn out to be bad.
    void discard() {
        if (window_.is_open) close();
        if (listener_ != nullptr) listener_->discard();
        ++window_.clock->serial;
        for (detail::window::part& p : window_.parts) {
            if (p.slabs.owner().is_divided()) p.slabs.owner().sharding()->cancel();
            p.slabs.drop_whole();
            p.slabs.owner().amaxes().forget();
        }
    }
    /// Called by a tape at the end of a backward pass whose gradients passed through fp16 or another type with a short
    /// exponent range, because of a layer's policy, a region or an operation's explicit type.
    void note_narrow_gradients() { window_.is_narrow = true; }
    /// Whether that happened in this window: without a loss scale such gradients underflow.
    bool has_narrow_gradients() const { return window_.is_open && window_.is_narrow; }
    /// The number of micro-batches in the window so far.
    int received() const { return window_.is_open ? window_.received : 0; }

    /// From now on `listener` is told of passes, claims and windows (memory/gradient_listener.hpp); nullptr: no listener.
    /// Throws state_error within a window.
    void listen(detail::gradient_listener* listener) {
        if (window_.is_open && listener != nullptr)
            fail<state_error>("accumulator: a listener in the middle of a window; take() or discard() first");
        for (const detail::window::part& p : window_.parts) {
            if (p.slabs.owner().is_divided() && listener != nullptr)
                fail<state_error>("accumulator: a model that ht::shard has divided, whose gradients it adds; leave out ht::data_parallel");
        }
        listener_ = listener;
        for (std::size_t i = 0; i < window_.parts.size(); ++i) window_.parts[i].slabs.listen(listener, i);
    }
    detail::gradient_listener* listener() const { return listener_; }
    /// Called by a tape at the end of a backward pass.
    void end_pass() {
        if (listener_ != nullptr) listener_->end_pass();
    }
    /// The window, for code that reads or changes gradients in place.
    detail::window& window() { return window_; }

  private:
    template <class Loss>
    void begin_pass(const Loss& loss) {
        const int ranks = detail::ranks_of_loss<std::remove_cvref_t<Loss>>::read(loss);
        for (detail::window::part& p : window_.parts) {
            if (auto* const sharding = p.slabs.owner().sharding()) sharding->begin_pass(p.slabs, received() + 1, ranks);
        }
        if (listener_ != nullptr) listener_->begin_pass(received() + 1, ranks);
    }
    void make(Models&... models) {
        static_assert(sizeof...(Models) > 0, "halftone: accumulator: name the models whose gradients it gathers");
        (add_part<Models>(models.parameters()), ...);
        dependency_.emplace(window_.parts[0].slabs.owner().memory());
        window_.record_memory = buffer(window_.parts[0].slabs.owner().memory(),
                                       detail::window::record_bytes(sizeof...(Models)), memory_kind::gradient);
    }
    template <class Model>
    void add_part(store& parameters) {
        if (find(parameters) != nullptr)
            fail<argument_error>("accumulator: two of the models have the same parameters");
        detail::check_visited<Model>("accumulator", parameters);
        window_.parts.push_back({gradient_slabs(parameters), false});
    }

    void open(const scale_stamp& stamp) {
        if (takes_scaled && !stamp.is_current()) {
            fail<state_error>(
                "accumulator: this loss was scaled before the scaler's last update(); scale each loss again");
        }
        if (!window_.is_open) {
            window_.is_open = true;
            dependency_->open();
            window_.received = 0;
            window_.is_narrow = false;
            window_.stamp = stamp;
            ++window_.clock->serial;
        } else if (!(window_.stamp == stamp)) {
            fail<state_error>("accumulator: the loss scale changed inside a window, after ", window_.received,
                              " micro-batches; call update() once, after the step, or discard()");
        }
        ++window_.received;
    }
    void close() {
        window_.is_open = false;
        dependency_->close();
        window_.is_clipped = false;
        window_.known = detail::window::knowledge::nothing;
        for (detail::window::part& p : window_.parts) {
            p.slabs.close();
            p.stepped = false;
        }
    }

    detail::window window_;
    std::optional<detail::window_dependency> dependency_;
    std::vector<const store*> left_out_;
    detail::gradient_listener* listener_ = nullptr;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
