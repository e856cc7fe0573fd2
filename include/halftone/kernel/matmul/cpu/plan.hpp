// SPDX-License-Identifier: MIT
/// \file
/// How a matrix product on the CPU is cut: a pure function from the shape, the unit, the layouts, the threads and the caches
/// to a strategy, with its block sizes. Any plan gives the same bits; plans differ in time alone.
///
/// The way of a product, file by file:
///
///     kernel/matmul/matmul.hpp              shapes are checked, the policy becomes a compute type
///     kernel/matmul/cpu.hpp                 operands and epilogue lose their types; a unit is chosen (cpu/unit/choose.hpp)
///     kernel/matmul/cpu/plan.hpp            a strategy is chosen, by the constants of tuning.hpp
///     kernel/matmul/cpu/strategy/*.hpp      its loops: who packs what, which block meets which panel
///     kernel/matmul/cpu/unit.hpp            what these loops call: pack, multiply a block by a panel
///     kernel/matmul/cpu/unit/*.simd.hpp     the registers
///     kernel/matmul/cpu.simd.hpp            the epilogue over finished sums
///
/// Strategies, in the order in which they are tried (the first one that applies is taken):
///
///     vector units            what stays in L2           who packs b               loops
///     narrow_b                b, unpacked                nobody                    strategy/unpacked_b.hpp
///     small_m                 rows of a, unpacked b      nobody                    strategy/unpacked_b.hpp
///     a_stationary            all of a                   who multiplies by it      strategy/private_panels.hpp
///     c_stationary            sums of m rows             who multiplies by it      strategy/private_panels.hpp
///     private_b               all of b                   every thread, all of it   strategy/private_b.hpp
///     shared_b                a block of a, its sums     all threads together      strategy/shared_b.hpp
///
///     matrix tiles
///     tiles_a_stationary      all of a                   who multiplies by it      strategy/tiles.hpp
///     tiles_shared_b          a block of a               all threads together      strategy/tiles.hpp
///
/// `bench_matmul --plan MxNxK` prints the choice for a shape, and why.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>

#include <halftone/kernel/matmul/cpu/tuning.hpp>
#include <halftone/kernel/matmul/cpu/unit.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

enum class product_strategy {
    narrow_b,
    small_m,
    a_stationary,
    c_stationary,
    private_b,
    shared_b,
    tiles_a_stationary,
    tiles_shared_b
};

/// What decides how a (m, k) times b (k, n) is cut.
struct product_problem {
    struct layout_of_a {
        bool is_k_contiguous = true;     ///< row-major: a row's elements are side by side
        bool is_row_contiguous = false;  ///< column-major, as the transpose of a matrix is
        bool has_unit_type = false;      ///< elements are what the unit multiplies, so that it can read them in place
        bool begins_rows_on_lines = false;  ///< every row begins on a cache line, as tiles want it that read a in place
        bool can_be_k_major = false;        ///< its packing has a k-major form
    };
    struct layout_of_b {
        bool is_row_major = true;
        bool has_unit_type = false;
        int element = 4;               ///< bytes
        bool can_be_unpacked = false;  ///< the unit multiplies by it without packing
    };

    extent m, n, k;
    product_unit unit;  ///< its numbers; of its functions only whether they are there
    layout_of_a a{};
    layout_of_b b{};
    int threads = 1;
    cache_sizes caches{};
};

/// How tiles get rows of a.
enum class source_of_a { in_place, packed_rows, packed_k_major };

struct product_plan {
    product_strategy strategy = product_strategy::shared_b;
    source_of_a a = source_of_a::packed_rows;
    bool packs_a_once = false;  ///< where a is packed: all of it, once; else each task packs what it needs
    extent k_chunk = 0;         ///< k of what is packed at a time; of tiles, k that sums stay in them for
    extent k_piece = 0;         ///< k of one multiplication
    extent block_rows = 0;      ///< of a block of c, and of a packed block of a
    extent block_columns = 0;   ///< of a block of c, or of the panels that a task packs for itself
    extent slice_columns = 0;   ///< of b, packed at a time
    // What follows from these.
    extent a_stride = 0;          ///< elements from row to row of a packed block; from group to group where k-major
    std::size_t block_bytes = 0;  ///< of a packed block of a, one piece of k
    std::size_t panel_bytes = 0;  ///< of a packed panel, one piece of k
    extent sums_stride = 0;       ///< floats from row to row of a block's sums
    std::size_t sums_bytes = 0;   ///< of a block's sums; 0 where tiles hold them throughout
    bool rows_inside = false;     ///< a's blocks are gone through for each panel; else panels for each block

    extent blocks(extent m) const { return ceil_div(m, block_rows); }
    /// The product of one block of rows and one panel is a result: no sums wait for more k.
    bool ends_in_one_piece(extent k) const {
        return (strategy == product_strategy::a_stationary || strategy == product_strategy::c_stationary) &&
               k <= k_piece;
    }
};

namespace planning {

inline extent round_down_to(extent value, extent step) { return std::max<extent>(1, value / step) * step; }
inline extent bytes(std::size_t n) { return static_cast<extent>(n); }

// ---- What several strategies ask -------------------------------------------------------------------------------------

inline extent depth_of(const product_problem& p) { return std::max<extent>(p.k, 1); }
/// k in equal pieces of at most what the unit takes well, whole cache lines of any type.
inline extent even_piece(extent depth, const product_unit& unit) {
    constexpr extent step = 32;
    return round_up(ceil_div(depth, ceil_div(depth, unit.deepest_piece)), step);
}
inline extent piece_of(const product_problem& p) { return even_piece(depth_of(p), p.unit); }
/// Bytes of a packed row of a or column of b.
inline extent row_bytes(const product_problem& p) { return p.unit.element * round_up(depth_of(p), piece_of(p)); }
inline bool is_wide(const product_unit& unit) { return unit.columns >= tuning::wide_columns; }
inline extent default_rows(const product_problem& p) {
    return std::min(tuning::block_rows, round_up(p.m, p.unit.rows));
}
inline extent work(const product_problem& p) { return p.m * p.n * depth_of(p); }
inline extent wanted_tasks(int threads, extent each) { return threads > 1 ? each * threads : 1; }
/// So little k that what a panel would prefetch arrives late: b had better be shared.
inline bool is_shallow(const product_problem& p) {
    return depth_of(p) <= tuning::shallow_depth && p.m >= tuning::shallow_rows && p.n >= tuning::shallow_columns;
}
/// Results of the busiest thread where each in turn takes a block of so many rows and columns: all whole blocks, then the
/// rows that are left.
extent results_of_busiest(const product_problem& p, extent rows, extent columns);

// ---- Strategies: what speaks against each (nullptr: it applies), and its blocks --------------------------------------

/// Rows of a that unpacked b takes.
extent most_unpacked_rows(const product_problem& p);

const char* against_narrow_b(const product_problem& p);
void plan_unpacked_columns(const product_problem& p, product_plan& plan);
void plan_narrow_b(const product_problem& p, product_plan& plan);

const char* against_small_m(const product_problem& p);
inline void plan_small_m(const product_problem& p, product_plan& plan) {
    plan_unpacked_columns(p, plan);
    plan.block_rows = round_up(p.m, p.unit.rows);
}

/// Whether threads may pack panels of their own.
const char* against_own_panels(const product_problem& p);
const char* against_a_stationary(const product_problem& p);
void plan_a_stationary(const product_problem& p, product_plan& plan);

/// Whether sums of all rows, which come and go with every piece of k, cost less than all threads' waiting until all of b is
/// packed. Rows that are packed again for every group of panels had better be short.
const char* against_c_stationary(const product_problem& p);
void plan_c_stationary(const product_problem& p, product_plan& plan);

const char* against_private_b(const product_problem& p);
void plan_private_b(const product_problem& p, product_plan& plan);

/// Cuts columns, rows or both in as many parts as threads, whole panels and tiles, if the busiest has less to do then.
void share_evenly(const product_problem& p, product_plan& plan);
inline const char* against_shared_b(const product_problem&) { return nullptr; }
void plan_shared_b(const product_problem& p, product_plan& plan);

// ---- Tiles -----------------------------------------------------------------------------------------------------------

/// Pieces of k, one at least.
inline extent pieces_of(const product_problem& p) { return std::max<extent>(1, ceil_div(p.k, panel_depth)); }
/// Equal passes over k of at most tile_pass_pieces, during which sums stay in tiles.
inline extent pieces_of_pass(const product_problem& p) {
    return ceil_div(pieces_of(p), ceil_div(pieces_of(p), tuning::tile_pass_pieces));
}
/// Bytes of a packed row of a or column of b over so many pieces of k.
inline extent bytes_of_pieces(const product_problem& p, extent pieces) { return pieces * panel_depth * p.unit.element; }
/// Rows whose k of one pass stays in L2.
inline extent rows_in_l2(const product_problem& p) {
    return round_down_to(bytes(tuning::tile_block_bytes(p.caches)) / bytes_of_pieces(p, pieces_of_pass(p)),
                         p.unit.rows);
}

inline const char* against_tiles_a_stationary(const product_problem& p) {
    const extent most = std::max(rows_in_l2(p), tuning::tile_own_panels_rows);
    return round_up(p.m, p.unit.rows) <= most ? nullptr : "packed a does not stay in L2 and has more than 256 rows";
}
void plan_tiles_a_stationary(const product_problem& p, product_plan& plan);

inline const char* against_tiles_shared_b(const product_problem&) { return nullptr; }
void plan_tiles_shared_b(const product_problem& p, product_plan& plan);

// ---- The choice ------------------------------------------------------------------------------------------------------

/// A strategy, its name, what speaks against it (nullptr: it applies), and its blocks.
struct strategy_rule {
    product_strategy strategy;
    const char* name;
    const char* (*against)(const product_problem&);
    void (*plan)(const product_problem&, product_plan&);
};
inline constexpr strategy_rule vector_rules[] = {
    {product_strategy::narrow_b, "narrow_b", &against_narrow_b, &plan_narrow_b},
    {product_strategy::small_m, "small_m", &against_small_m, &plan_small_m},
    {product_strategy::a_stationary, "a_stationary", &against_a_stationary, &plan_a_stationary},
    {product_strategy::c_stationary, "c_stationary", &against_c_stationary, &plan_c_stationary},
    {product_strategy::private_b, "private_b", &against_private_b, &plan_private_b},
    {product_strategy::shared_b, "shared_b", &against_shared_b, &plan_shared_b}};
inline constexpr strategy_rule tile_rules[] = {
    {product_strategy::tiles_a_stationary, "tiles_a_stationary", &against_tiles_a_stationary, &plan_tiles_a_stationary},
    {product_strategy::tiles_shared_b, "tiles_shared_b", &against_tiles_shared_b, &plan_tiles_shared_b}};

/// The strategies of a unit, in the order in which they are tried; the last one always applies.
struct strategy_rules {
    const strategy_rule *first, *last;

    explicit strategy_rules(const product_unit& unit)
        : first(unit.tiles ? std::begin(tile_rules) : std::begin(vector_rules)),
          last(unit.tiles ? std::end(tile_rules) : std::end(vector_rules)) {}
    const strategy_rule* begin() const { return first; }
    const strategy_rule* end() const { return last; }
    const strategy_rule& chosen_for(const product_problem& p) const {
        const strategy_rule* r = first;
        while (r->against(p) != nullptr) ++r;
        return *r;
    }
};

/// What is read in place: rows of the unit's type, whole steps of k; by tiles, whole tiles of whole cache lines.
bool reads_a_in_place(const product_problem& p);
source_of_a choose_source_of_a(const product_problem& p, product_strategy strategy);

/// Elements from row to row of a packed block: an odd number of cache lines, so that rows fall into different sets.
inline extent odd_line_stride(extent piece, extent element) {
    constexpr extent line = 64;
    return (ceil_div(piece * element, line) | 1) * line / element;
}
/// Bytes and strides of vector units.
void lay_out(const product_problem& p, product_plan& plan);
/// Bytes and strides of tiles.
void lay_out_tiles(const product_problem& p, product_plan& plan);

}  // namespace planning

/// The plan of a product, whose m and n are positive.
product_plan plan_product(const product_problem& p);

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/matmul/cpu/plan.body.hpp>
#endif
