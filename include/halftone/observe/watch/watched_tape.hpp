// SPDX-License-Identifier: MIT
/// \file
/// A tape that shows what its operations give: every result in the forward pass and every gradient in the backward
/// pass, with the path of the layer that made it. observe/overflow/overflow.hpp and observe/numerics/numerics.hpp use
/// it.
///
///     ht::tape tape{device, ht::watched};
///     tape.watch(finder);                                    // any tensor_listener, until tape.unwatch(finder)
///     tape.backward(scaler.scale(model.loss(tape, batch)), acc);
///
/// It is a type of its own: plain tapes have no code for this, and a step gives the same bits on both. Paths are those
/// of at<>, with the index for layers of a list (nn::stack). A free operation has no layer: it is named by the list's
/// layer in which it is called, and by the layer called before it. Operations' internal values (a norm's means, say)
/// are not shown, and neither are doubles. Numbers of a type of a user's own are shown in float, which holds them.
///
/// A tensor is shown before anything can overwrite it: a result when the next operation or the backward pass begins; a
/// gradient when the operation's backward function has returned, including contributions of earlier ones.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <halftone/autodiff/engine/hook.hpp>
#include <halftone/autodiff/engine/operation.hpp>
#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/convert/convert.hpp>
#include <halftone/observe/profile/work.hpp>
#include <halftone/observe/watch/watched_tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The kind of a watched tape.
struct watched_tape {
    explicit watched_tape() = default;
};
/// Written as ht::tape tape{device, ht::watched}.
inline constexpr watched_tape watched{};

namespace detail {

/// Whether tensors of T are shown: those of one byte are, as operands of products, beside what they were made from.
template <class T>
inline constexpr bool is_watchable =
    std::is_same_v<T, float> || std::is_same_v<T, float16> || std::is_same_v<T, bfloat16> || (own_number<T> && sizeof(T) > 1);

/// Writes a tensor of a user's own number type in float.
template <class Device>
using widening = void (*)(Device& device, const void* from, extent count, float* to);
template <class Device, class T>
void widen(Device& device, const void* from, extent count, float* to) {
    convert(device, const_view<T, 1>(static_cast<const T*>(from), {count}), view<float, 1>(to, {count}));
}
/// The conversion to floats of a number type T of a user's own; nullptr for any other T.
template <class Device, class T>
constexpr widening<Device> widening_of() {
    if constexpr (own_number<T>) return widen<Device, T>;
    return nullptr;
}

/// True, or a compile-time error, for tools that need a watched tape.
template <class Kind>
consteval bool check_watched() {
    static_assert(
        !std::is_same_v<Kind, double_backward_tape>,
        "halftone: this looks at what a tape shows, and one for second derivatives shows nothing, nor can it "
        "be watched as well: look at the same loss without its penalty, on ht::tape tape{device, ht::watched}");
    static_assert(std::is_same_v<Kind, watched_tape> || std::is_same_v<Kind, double_backward_tape>,
                  "halftone: this looks at what a tape shows, and a plain tape shows nothing: write ht::tape "
                  "tape{device, ht::watched};");
    return true;
}

/// The layer to which roles or a region's policy belong.
template <class Where>
inline constexpr path_name layer_path_of = path_of<Where>;
template <class Roles, class P>
inline constexpr path_name layer_path_of<roles_of_layer<Roles, P>> = path_of<P>;

/// Keeps operations' results until they can be shown, and shows them to listeners.
template <class Device>
class watch_hook : public tape_hook {
  public:
    static constexpr bool names_layers = true;

    explicit watch_hook(tape<Device>& owner) : owner_(&owner) {}
    ~watch_hook() { forget(); }

    void watch(tensor_listener& listener) { listeners_.push_back(&listener); }
    /// Shows nothing more to the listener.
    void unwatch(const tensor_listener& listener) { std::erase(listeners_, &listener); }
    bool is_watched() const { return !listeners_.empty(); }
    void begin_step() { micro_batch_ = 0; }
    /// The operation that began last, its pass and its layer: "linear (forward) of h.0.mlp.up"; empty: none has begun, or
    /// nobody watches or asks for layers, which are not followed then.
    std::string place_of_last() const {
        if (current_ == nullptr || !(is_watched() || tells_layers())) return {};
        std::string text = current_->operation + " (" + name(pass_) + ")";
        if (!current_->layer.empty()) text += " of " + current_->layer;
        if (!current_->after.empty()) text += " after " + current_->after;
        return text;
    }

    // ---- forward

    /// Watches a variable, shown as an input.
    template <class T, int Rank>
    void input(const variable<T, Rank>& v) {
        if constexpr (is_watchable<T>) {
            if (is_watched() && v.size() != 0) {
                pending_.push_back({tensor_role::value, nullptr, shown_as<T>(), v.view().data(), v.size(), held(v),
                                    graph::none, true});
            }
        }
    }
    template <class Where>
    void begin(const char* operation) {
        show();
        if (is_watched() || tells_layers()) {
            static constexpr auto place = layer_path_of<Where>.text();
            begin_at(place.data, operation);
        }
    }
    void end() { is_open_ = false; }
    void tell_layer() const {
        if (tells_layers()) tell_layer_of(current_);
    }
    template <class Record>
    void record(const Record& r) {
        if (!tells_work()) return;
        operation_work w = forward_work(r);
        w.is_repeated = is_recomputing_;
        owner_->graph().listener->work(w);
    }
    template <class T, int Rank>
    void give(const variable<T, Rank>& made, bool wants_gradient) {
        if constexpr (is_watchable<T>) {
            // Of an operation's floats only its result is shown, which comes first or takes a gradient; others are
            // internal.
            if (is_open_ && made.size() != 0 && (std::exchange(is_first_, false) || wants_gradient || !std::is_same_v<T, float>))
                note_value(made);
        }
    }
    /// The 8-bit operand of a product with this weight, made from x: shown at once, while both exist.
    template <class X, class Q, int Rank, class Weight>
    void read_scaled(const view<X, Rank>& x, const view<Q, Rank>& q, const tensor_scale* scale, const Weight& weight,
                     scaled_tensor tensor, const scaling_rule& rule) {
        using T = std::remove_const_t<X>;
        if constexpr (is_watchable<T>) {
            if (!is_watched() || x.size() == 0 || (is_recomputing_ && pass_ == halftone::pass::forward)) return;
            if (pass_ == halftone::pass::backward) show();
            const watched_tensor shown{current_, pass_, micro_batch_, tensor_role::operand,
                                       weight.owner().entries()[weight.entry()].path.c_str(), value_format::of<T>(),
                                       x.data(), x.size(), {tensor, value_format::of<Q>(), q.data(), scale, rule}};
            tell(shown, widening_of<Device, T>(), false);
        }
    }

    // ---- backward

    const watched_operation* note() const { return current_; }
    template <class T, class Run>
    void pass(const variable<T, 0>& loss, const Run& run) {
        show();
        if constexpr (is_watchable<T>) {
            if (is_watched()) {
                current_ = known(current_ == nullptr ? "" : current_->layer, "", "loss scale");
                pending_.push_back({tensor_role::gradient, nullptr, shown_as<T>(), nullptr, 1, graph::none,
                                    loss.slot()});
            }
        }
        try {
            run();
        } catch (...) {
            forget();
            throw;
        }
        forget();
        ++micro_batch_;
    }
    template <class Record, class Run>
    void backward(const Record& r, const watched_operation* by, const Run& run) {
        pass_ = halftone::pass::backward;
        show();  // the gradient with which the pass begins
        current_ = by;
        if (by != nullptr && tells_layers()) tell_layer_of(by);
        if (tells_work()) owner_->graph().listener->work(backward_work(r));
        run();
        show();
    }
    /// Where the gradient of v is written; it is shown when the operation's backward function has returned.
    template <class T, int Rank>
    void give_gradient(const gradient_of<T, Rank>& v, const T*, write_mode) {
        if constexpr (is_watchable<T>) {
            if (is_watched()) {
                pending_.push_back({tensor_role::gradient, nullptr, shown_as<T>(), nullptr, v.shape().size(),
                                    graph::none, v.slot()});
            }
        }
    }
    /// Where the gradient of a parameter is written; shown in the same way.
    template <class Storage, int Rank>
    void give_parameter_gradient(const parameter<Storage, Rank>& p, const typename Storage::accumulate* data,
                                 write_mode) {
        note_parameter_gradient(p, data, p.shape().size());
    }
    /// A sparse gradient is shown with its whole capacity: rows after the existing ones are zero.
    template <class Storage, int Rank>
    void give_rows(const parameter<Storage, Rank>& p,
                   const gradient_slabs::row_place<typename Storage::accumulate>& to) {
        using T = typename Storage::accumulate;
        if constexpr (is_watchable<T>) {
            if (!is_watched()) return;
            const extent used = to.before * to.rows.values.extent_of(1);
            owner_->device().fill(to.rows.values.data() + used, to.rows.values.size() - used, T(0.0f));
            note_parameter_gradient(p, to.rows.values.data(), to.rows.values.size());
        }
    }
    void recompute(bool now) { is_recomputing_ = now; }
    void forget() noexcept {
        for (const unseen& t : pending_) {
            if (t.block != graph::none) owner_->graph().release_block(t.block);
        }
        pending_.clear();
        is_open_ = false;
    }

    /// While an object of this class lives, operations belong to layer `index` of a list.
    class list_scope {
      public:
        list_scope(watch_hook& owner, const path_name& list, int index) : owner_(&owner) {
            const auto path = list.text();
            owner.lists_.push_back(
                {path, 1 + static_cast<int>(std::count(path.data, path.data + list.size(), '.')), index});
        }
        list_scope(const list_scope&) = delete;
        list_scope& operator=(const list_scope&) = delete;
        ~list_scope() { owner_->lists_.pop_back(); }

      private:
        watch_hook* owner_;
    };

  protected:  // for observe/shadow/tape.hpp
    /// How numbers of a type are shown.
    struct shown_type {
        value_format format;
        widening<Device> widen;  // nullptr: as they are
    };
    template <class T>
    static constexpr shown_type shown_as() {
        return {value_format::of<T>(), widening_of<Device, T>()};
    }
    /// A tensor that has not been shown yet.
    struct unseen {
        tensor_role role;
        const char* parameter;
        shown_type type;
        const void* data;                  // nullptr for a gradient, whose memory may still change
        extent count;
        graph::index block = graph::none;  // for a value: its block, kept alive until it is shown
        graph::index slot = graph::none;   // for a gradient
        bool is_input = false;
    };
    struct list {
        path_name::characters path;
        int position, index;
    };

    /// The variable's memory, which is kept until it is shown.
    template <class T, int Rank>
    graph::index held(const variable<T, Rank>& v) {
        const auto block = owner_->graph().value_block(v.slot());
        owner_->graph().retain_block(block);
        return block;
    }
    template <class T, int Rank>
    void note_value(const variable<T, Rank>& v) {
        pending_.push_back({tensor_role::value, nullptr, shown_as<T>(), v.view().data(), v.size(), held(v)});
    }
    template <class Storage, int Rank, class T>
    void note_parameter_gradient(const parameter<Storage, Rank>& p, const T* data, extent count) {
        if constexpr (is_watchable<T>) {
            if (is_watched()) {
                pending_.push_back({tensor_role::parameter_gradient, p.owner().entries()[p.entry()].path.c_str(),
                                    shown_as<T>(), data, count});
            }
        }
    }

    void begin_at(const char* path, const char* operation) {
        is_open_ = is_first_ = is_watched() && !is_recomputing_;
        pass_ = halftone::pass::forward;
        if (*path == 0) {
            current_ = known(lists_.empty()
                                 ? ""
                                 : run_time_path(lists_.back().path.data) + '.' + std::to_string(lists_.back().index),
                             latest_, operation);
        } else {
            latest_ = run_time_path(path);
            current_ = known(latest_, "", operation);
        }
    }
    /// Whether the tape has a listener that asks for layers; they are told to it whether or not tensors are watched.
    bool tells_layers() const {
        const range_listener* const listener = owner_->graph().listener;
        return ranges_exist && listener != nullptr && listener->wants_origins();
    }
    bool tells_work() const {
        const range_listener* const listener = owner_->graph().listener;
        return ranges_exist && listener != nullptr && listener->wants_work();
    }
    void tell_layer_of(const watched_operation* by) const {
        std::string place = by->layer;
        if (!by->after.empty()) place += (place.empty() ? "after " : " after ") + by->after;
        owner_->graph().listener->layer(place.c_str());
    }
    const watched_operation* known(const std::string& layer, const std::string& after, const char* operation) {
        return &*operations_.insert({layer, after, operation}).first;
    }
    /// A layer's path with indices where its type has '*' or "last", as store::run_time_path.
    std::string run_time_path(std::string_view path) const {
        std::string text;
        for (int position = 0;; ++position) {
            const std::string_view component = path.substr(0, path.find('.'));
            const auto here = std::find_if(lists_.begin(), lists_.end(),
                                           [position](const list& l) { return l.position == position; });
            text += here == lists_.end() ? std::string(component) : std::to_string(here->index);
            if (component.size() == path.size()) return text;
            text += '.';
            path.remove_prefix(component.size() + 1);
        }
    }

    void show() {
        const graph& g = owner_->graph();
        for (std::size_t i = 0; i < pending_.size(); ++i) {
            const unseen& t = pending_[i];
            const bool moved = t.role == tensor_role::gradient;
            if (!moved || g.has_gradient(t.slot)) {
                const void* data = moved ? g.gradient(t.slot) : t.data;
                const watched_operation* by = t.is_input ? known("", "", "input") : current_;
                tell({by, pass_, micro_batch_, t.role, t.parameter, t.type.format, data, t.count}, t.type.widen, t.is_input);
            }
        }
        forget();
    }

    void tell(watched_tensor t, widening<Device> widen, bool is_input) const {
        if (listeners_.empty()) return;
        const workspace::lease floats(owner_->device().scratch(),
                                      widen == nullptr ? 0 : static_cast<std::size_t>(t.count) * sizeof(float));
        if (widen != nullptr) {
            widen(owner_->device(), t.data, t.count, floats.template as<float>());
            t.widened = floats.template as<float>();
        }
        for (tensor_listener* listener : listeners_) is_input ? listener->on_input(t) : listener->on_tensor(t);
    }

    tape<Device>* owner_;
    std::vector<tensor_listener*> listeners_;
    std::vector<unseen> pending_;
    std::set<watched_operation> operations_;
    std::vector<list> lists_;
    std::string latest_;                          // the layer of the last operation that is in one
    const watched_operation* current_ = nullptr;
    halftone::pass pass_ = halftone::pass::forward;
    int micro_batch_ = 0;
    bool is_open_ = false, is_first_ = false;     // an operation is running; it has made nothing yet
    bool is_recomputing_ = false;                 // values have been shown before
};

}  // namespace detail

/// A plain tape whose values and gradients are shown to listeners, in the order of the operations.
template <class Device>
class tape<Device, watched_tape> : public detail::hooked_tape<Device, detail::watch_hook<Device>> {
  public:
    explicit tape(Device& device, watched_tape = watched)
        : detail::hooked_tape<Device, detail::watch_hook<Device>>(device) {}

    /// Shows every tensor to the listener from now on; it must outlive the tape's use, or be removed.
    void watch(tensor_listener& listener) { this->hook().watch(listener); }
    /// Shows nothing more to the listener.
    void unwatch(const tensor_listener& listener) { this->hook().unwatch(listener); }
    bool is_watched() const { return this->hook().is_watched(); }
    /// The next backward pass is the first of a step.
    void begin_step() { this->hook().begin_step(); }
};
template <class Device>
tape(Device&, watched_tape) -> tape<Device, watched_tape>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
