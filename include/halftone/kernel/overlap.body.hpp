// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in overlap.hpp that are no templates.
#pragma once

#include <halftone/kernel/overlap.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The memory of a view: the addresses from its first byte to the one behind its last, and the steps between its elements.
class memory_span {
  public:
    explicit memory_span(const named_elements& v) {
        if (v.data == nullptr || v.rank > most_steps) return;
        for (int axis = 0; axis < v.rank; ++axis) {
            if (v.extents[axis] == 0) return;
        }
        std::uintptr_t before = 0;
        steps_ = 0;
        for (int axis = 0; axis < v.rank; ++axis) {
            const bool backwards = v.strides[axis] < 0;
            const std::uintptr_t distance =
                static_cast<std::uintptr_t>(backwards ? -v.strides[axis] : v.strides[axis]) * v.bytes;
            const std::uintptr_t whole = static_cast<std::uintptr_t>(v.extents[axis] - 1) * distance;
            if (backwards) before += whole;
            if (whole != 0) add({distance, v.extents[axis]});
        }
        first_ = reinterpret_cast<std::uintptr_t>(v.data) - before;
        dense_ = v.bytes;
        while (dense_steps_ < steps_ && step_[dense_steps_].distance <= dense_) dense_ += reach(dense_steps_++);
    }

    bool meets(const memory_span& other) const {
        int tries = 4096;
        return steps_ >= 0 && other.steps_ >= 0 &&
               parts_meet(*this, first_, steps_, other, other.first_, other.steps_, tries);
    }

  private:
    struct step {
        std::uintptr_t distance;  // in bytes
        extent count;
    };
    static constexpr int most_steps = 16;

    /// Shortest first.
    void add(const step& s) {
        int i = steps_++;
        for (; i > 0 && step_[i - 1].distance > s.distance; --i) step_[i] = step_[i - 1];
        step_[i] = s;
    }
    std::uintptr_t reach(int i) const { return static_cast<std::uintptr_t>(step_[i].count - 1) * step_[i].distance; }
    /// The length in bytes of the part that the first `steps` steps make.
    std::uintptr_t length(int steps) const {
        std::uintptr_t all = dense_;
        for (int i = dense_steps_; i < steps; ++i) all += reach(i);
        return all;
    }

    /// Whether the part of a at at_a and that of b at at_b have memory in common. False, too, if that takes too many tries.
    static bool parts_meet(const memory_span& a, std::uintptr_t at_a, int steps_a, const memory_span& b,
                           std::uintptr_t at_b, int steps_b, int& tries) {
        if (at_a + a.length(steps_a) <= at_b || at_b + b.length(steps_b) <= at_a) return false;
        if (steps_a == a.dense_steps_) return b.has_some_in(at_a, at_a + a.dense_, at_b, steps_b);
        if (steps_b == b.dense_steps_) return a.has_some_in(at_b, at_b + b.dense_, at_a, steps_a);
        const step &rows = a.step_[steps_a - 1], &others = b.step_[steps_b - 1];
        if (rows.distance < others.distance) return parts_meet(b, at_b, steps_b, a, at_a, steps_a, tries);
        const std::uintptr_t row = a.length(steps_a - 1), other = b.length(steps_b - 1);
        if (rows.distance == others.distance && row <= rows.distance && other <= rows.distance) {
            // As of columns of one matrix: what two rows have in common depends on how many rows lie between them.
            const auto apart = static_cast<std::intptr_t>(at_b - at_a) / static_cast<std::intptr_t>(rows.distance);
            for (auto between = static_cast<extent>(apart) - 1; between <= static_cast<extent>(apart) + 1; ++between) {
                if (between >= rows.count || -between >= others.count) continue;
                if (parts_meet(a, at_a + static_cast<std::uintptr_t>(between) * rows.distance, steps_a - 1, b, at_b,
                               steps_b - 1, tries))
                    return true;
            }
            return false;
        }
        const std::uintptr_t first = at_b < at_a + row ? 0 : (at_b - at_a - row) / rows.distance + 1;
        for (auto k = static_cast<extent>(first); k < rows.count && --tries >= 0; ++k) {
            const std::uintptr_t part = at_a + static_cast<std::uintptr_t>(k) * rows.distance;
            if (part >= at_b + b.length(steps_b)) return false;
            if (parts_meet(a, part, steps_a - 1, b, at_b, steps_b, tries)) return true;
        }
        return false;
    }

    /// Whether one of the elements at `at` and the first `steps` steps from there is in the memory from `begin` to `end`.
    bool has_some_in(std::uintptr_t begin, std::uintptr_t end, std::uintptr_t at, int steps) const {
        if (steps == dense_steps_) return at < end && begin < at + dense_;
        const std::uintptr_t part_length = length(steps - 1);
        const step& s = step_[steps - 1];
        // Of parts that lie in the memory as a whole one is enough, so that few are asked.
        const std::uintptr_t first = begin < at + part_length ? 0 : (begin - at - part_length) / s.distance + 1;
        for (auto k = static_cast<extent>(first); k < s.count; ++k) {
            const std::uintptr_t part = at + static_cast<std::uintptr_t>(k) * s.distance;
            if (part >= end) return false;
            if (has_some_in(begin, end, part, steps - 1)) return true;
        }
        return false;
    }

    std::uintptr_t first_ = 0, dense_ = 0;
    step step_[most_steps]{};
    int steps_ = -1, dense_steps_ = 0;  // -1: no elements, or more axes than steps
};

HALFTONE_OUT_OF_LINE std::string shape_text(const named_elements& v) {
    std::string text = "(";
    for (int axis = 0; axis < v.rank; ++axis) text += sentence(axis > 0 ? ", " : "", v.extents[axis]);
    return text + ')';
}
HALFTONE_OUT_OF_LINE std::string text_of(const named_elements& v) {
    return v.index < 0 ? sentence(v.name, ' ', shape_text(v)) : sentence(v.name, ' ', v.index, ' ', shape_text(v));
}

HALFTONE_OUT_OF_LINE void expect_apart(const char* operation, const named_elements& read, const named_elements& written) {
    if (memory_span(read).meets(memory_span(written))) {
        fail<shape_error>(operation, ": ", text_of(read), " is in the memory of ", text_of(written),
                          ", which is written to while it is read; copy it first");
    }
}

HALFTONE_OUT_OF_LINE void expect_apart_or_same(const char* operation, const named_elements& read, const named_elements& written) {
    if (read.rank > written.rank) return;
    bool same = read.data == written.data && read.type == written.type;
    for (int axis = 1; axis <= written.rank; ++axis) {
        const int of_read = read.rank - axis, of_written = written.rank - axis;
        if (of_read >= 0 && read.extents[of_read] != written.extents[of_written]) return;
        const extent stride = of_read >= 0 ? read.strides[of_read] : 0;
        same = same && (written.extents[of_written] == 1 || stride == written.strides[of_written]);
    }
    if (!same) expect_apart(operation, read, written);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
