// SPDX-License-Identifier: MIT
/// \file
/// Ranges: named parts of a program's run, each of one pass, reported to a listener such as a profiler.
///
///     const ht::range r(listener, "attention", ht::pass::forward);       // until the end of the scope
///     const ht::scoped_range here(tape, "encoder");                      // a part of your own, with operations inside
///
/// Without a listener a range costs one comparison with a null pointer. Compiled with HALFTONE_NO_RANGES, ranges tell
/// nobody, and have no code at all; every file of a program must then be compiled so.
#pragma once

#include <concepts>
#include <cstdint>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The pass of a training step that a range belongs to.
enum class pass { forward, backward, update };

/// The number of passes.
inline constexpr int passes = 3;

/// "forward", "backward" or "update".
constexpr const char* name(pass p) {
    constexpr const char* names[passes] = {"forward", "backward", "update"};
    return names[static_cast<int>(p)];
}

/// The part of a step that a scope belongs to: a row of its own in a trace.
enum class track { step, data, forward, backward, update, files, collectives };

/// The number of tracks.
inline constexpr int tracks = 7;

/// "step", "data", "forward", "backward", "update", "files" or "collectives".
constexpr const char* name(track t) {
    constexpr const char* names[tracks] = {"step", "data", "forward", "backward", "update", "files", "collectives"};
    return names[static_cast<int>(t)];
}

/// The arithmetic of products: the unit of the machine that they run on.
enum class arithmetic { fp32, tf32, bf16, fp16, fp8, fp64 };

/// The number of kinds of arithmetic.
inline constexpr int arithmetics = 6;

/// "fp32", "tf32", "bf16", "fp16", "fp8" or "fp64".
constexpr const char* name(arithmetic a) {
    constexpr const char* names[arithmetics] = {"fp32", "tf32", "bf16", "fp16", "fp8", "fp64"};
    return names[static_cast<int>(a)];
}

/// What an operation has to do, counted from shapes and types (observe/profile/work.hpp has the formulas).
struct operation_work {
    double flops = 0;                   ///< additions, multiplications, divisions and functions
    double bytes = 0;                   ///< of the memory that it must read and write, each tensor once
    double products = 0;                ///< of the flops, those of matrix products, which run in `in`
    arithmetic in = arithmetic::fp32;
    bool is_repeated = false;           ///< the recomputation of a checkpoint: not a part of what the model needs
};

/// Receives the beginning and the end of ranges. Ranges nest as scopes do; names are literals, or live as long as the
/// program.
class range_listener {
  public:
    range_listener() = default;
    range_listener(const range_listener&) = delete;
    range_listener& operator=(const range_listener&) = delete;
    virtual ~range_listener() = default;

    /// A range of this name begins.
    virtual void begin(const char* operation, pass p) = 0;
    /// The range that began last ends.
    virtual void end() = 0;

    /// Whether the following is to be told, too: it costs a string for each operation, and evaluations take part.
    virtual bool wants_origins() const { return false; }
    /// The range that began last is of the layer with this path, "h.0.attn.qkv", or "h.0 after h.0.attn.proj" for an
    /// operation between layers. Watched tapes tell it (observe/watch/watched_tape.hpp); other contexts tell the layer of
    /// a list, "h.0".
    virtual void layer(const char* /*path*/) {}
    /// A training step begins; the first has number 1.
    virtual void begin_step(std::int64_t /*step*/) {}
    /// The step is complete. Not called for a step that ends with an exception.
    virtual void end_step() {}

    /// A part of the program begins, which may contain operations and other parts: a pass, the loading of data, a part
    /// that the user has named.
    virtual void begin_scope(const char* /*name*/, track) {}
    /// The part that began last ends.
    virtual void end_scope() {}

    /// Whether the following is to be told, too.
    virtual bool wants_work() const { return false; }
    /// The range that began last does this, in addition to what was told before. Watched tapes tell it.
    virtual void work(const operation_work&) {}
};

namespace detail {

/// Whether ranges have code.
#if defined(HALFTONE_NO_RANGES)
inline constexpr bool ranges_exist = false;
#else
inline constexpr bool ranges_exist = true;
#endif

/// What has no listener of its own but a tape that has one: a context.
template <class Context>
concept has_listened_graph = requires(Context& ctx) {
    { ctx.root().graph().listener } -> std::convertible_to<range_listener*>;
};

}  // namespace detail

/// Begins a range, and ends it at the end of the scope. Without a listener it does nothing.
class range {
  public:
    range(range_listener* listener, const char* operation, pass p) : listener_(listener) {
        if (detail::ranges_exist && listener_ != nullptr) listener_->begin(operation, p);
    }
    range(const range&) = delete;
    range& operator=(const range&) = delete;
    ~range() {
        if (detail::ranges_exist && listener_ != nullptr) listener_->end();
    }

  private:
    range_listener* listener_;
};

/// A part of the program, from here to the end of the C++ scope: of the listener's, or of the one that a context's tape
/// has. Parts nest, also with operations. In models, whose forward pass it names, the track may be left out.
class scoped_range {
  public:
    scoped_range(range_listener* listener, const char* name, track on = track::step) : listener_(listener) {
        if (detail::ranges_exist && listener_ != nullptr) listener_->begin_scope(name, on);
    }
    template <detail::has_listened_graph Context>
    scoped_range(Context&& ctx, const char* name, track on = track::forward)
        : scoped_range(ctx.root().graph().listener, name, on) {}
    scoped_range(const scoped_range&) = delete;
    scoped_range& operator=(const scoped_range&) = delete;
    ~scoped_range() {
        if (detail::ranges_exist && listener_ != nullptr) listener_->end_scope();
    }

  private:
    range_listener* listener_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
