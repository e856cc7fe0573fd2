// SPDX-License-Identifier: MIT
/// \file
/// A series of any length in limited memory, for drawing: neighbours are combined, and extremes kept.
///
///     ht::curve loss;
///     for (…) loss.add(step, value);
///     loss.points(240);                                    // at most 4 x 240 points, with all local extremes
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <halftone/config.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A point of a curve.
struct curve_point {
    double x = 0, y = 0;
    bool operator==(const curve_point&) const = default;
};

/// A series with ascending x. Of each group of neighbours it keeps the first, the least, the greatest and the last; when
/// there are too many groups, each two become one. Values that are not finite are counted and left out.
class curve {
  public:
    curve() : curve(2048) {}
    /// Keeps at most this number of groups; at least 2.
    explicit curve(std::size_t most_groups) : most_(std::max<std::size_t>(most_groups, 2)) {}

    /// Appends a value; x is not below that of the last one.
    void add(double x, double y) {
        if (!is_finite(x) || !is_finite(y)) {
            ++not_finite_;
            return;
        }
        if (groups_.empty() || groups_.back().count == each_) {
            if (groups_.size() == most_) halve();
            if (groups_.empty() || groups_.back().count == each_) groups_.push_back({{x, y}, {x, y}, {x, y}, {x, y}, 0, 0});
        }
        group& g = groups_.back();
        if (y < g.least.y) g.least = {x, y};
        if (y > g.greatest.y) g.greatest = {x, y};
        g.last = {x, y};
        ++g.count;
        g.sum += y;
    }

    bool empty() const { return groups_.empty(); }
    /// How many values were not finite.
    std::size_t not_finite() const { return not_finite_; }
    /// The last point; of a curve that is not empty.
    curve_point last() const { return groups_.back().last; }
    /// The curve in at most 4 x `columns` points, in the order of x, with the extremes of each column.
    std::vector<curve_point> points(std::size_t columns) const {
        std::vector<curve_point> all;
        for_each_column(columns, [&](const group& g) {
            const bool low_first = g.least.x <= g.greatest.x;
            for (const curve_point& p : {g.first, low_first ? g.least : g.greatest, low_first ? g.greatest : g.least, g.last}) {
                if (all.empty() || !(all.back() == p)) all.push_back(p);
            }
        });
        return all;
    }
    /// The mean of each of at most `columns` columns, at the middle of the column: the trend of a curve that varies much.
    std::vector<curve_point> means(std::size_t columns) const {
        std::vector<curve_point> all;
        for_each_column(columns, [&](const group& g) {
            all.push_back({(g.first.x + g.last.x) / 2, g.sum / static_cast<double>(g.count)});
        });
        return all;
    }
    /// The greatest value of each of at most `columns` columns, at the beginning of the column.
    std::vector<curve_point> greatest(std::size_t columns) const {
        std::vector<curve_point> all;
        for_each_column(columns, [&](const group& g) { all.push_back({g.first.x, g.greatest.y}); });
        return all;
    }

  private:
    struct group {
        curve_point first, least, greatest, last;
        std::size_t count;
        double sum;

        void append(const group& next) {
            if (next.least.y < least.y) least = next.least;
            if (next.greatest.y > greatest.y) greatest = next.greatest;
            last = next.last;
            count += next.count;
            sum += next.sum;
        }
    };
    template <class F>
    void for_each_column(std::size_t columns, const F& f) const {
        const std::size_t wanted = std::max<std::size_t>(columns, 1),
                          together = detail::ceil_div(groups_.size(), wanted);
        for (std::size_t i = 0; i < groups_.size(); i += together) {
            group g = groups_[i];
            for (std::size_t j = i + 1; j < std::min(i + together, groups_.size()); ++j) g.append(groups_[j]);
            f(g);
        }
    }
    void halve() {
        std::size_t to = 0;
        for (std::size_t i = 0; i < groups_.size(); i += 2, ++to) {
            group g = groups_[i];
            if (i + 1 < groups_.size()) g.append(groups_[i + 1]);
            groups_[to] = g;
        }
        groups_.resize(to);
        each_ *= 2;
    }

    std::size_t most_, each_ = 1, not_finite_ = 0;
    std::vector<group> groups_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
