// SPDX-License-Identifier: MIT
/// \file
/// Shapes near the limits of a grid: at most 65,535 blocks along y and z, and 2^31 - 1 along x. The emulated GPU runs only the
/// blocks at the corners of such a grid, which write the first and the last elements; memory that no block accesses is not
/// allocated.
#include <cstdlib>
#include <memory>

#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/kernel/dropout/device.hpp>
#include <halftone/kernel/embedding/device.hpp>
#include <halftone/kernel/map/device.hpp>
#include <halftone/kernel/matmul/device.hpp>
#include <halftone/kernel/norm/device.hpp>
#include <halftone/kernel/softmax/device.hpp>
#include <halftone/kernel/count_nonfinite/device.hpp>

namespace emulator_kernel_grids_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;
namespace on_device = ht::kernel::on_device;
using ht::extent;
using ht::simt::grid_shape;

constexpr extent most_folds = 65535;

/// One block of a kernel's grid.
template <class Kernel>
struct block_of {
    static constexpr int threads = Kernel::threads;
    static constexpr ht::simt::word shared_bytes = Kernel::shared_bytes;

    template <class Simt>
    struct moved : Simt {
        grid_shape at;
        grid_shape block() const { return at; }
    };

    Kernel kernel;
    grid_shape at;

    grid_shape grid() const { return {}; }
    template <class Simt>
    void operator()(Simt simt) const {
        kernel(moved<Simt>{simt, at});
    }
};

/// Runs the blocks at a grid's corners; none if CUDA would reject the grid.
class corner_device : public emulator::device {
  public:
    template <class Kernel>
    void launch(const Kernel& kernel) {
        const grid_shape g = kernel.grid();
        CHECK(g.x > 0);
        CHECK(g.y <= most_folds);
        CHECK(g.z <= most_folds);
        if (g.y > most_folds || g.z > most_folds) return;
        for (int corner = 0; corner < 8; ++corner) {
            const grid_shape at{corner & 1 ? g.x - 1 : 0, corner & 2 ? g.y - 1 : 0, corner & 4 ? g.z - 1 : 0};
            if ((corner & 1 && g.x == 1) || (corner & 2 && g.y == 1) || (corner & 4 && g.z == 1)) continue;
            emulator::device::launch(block_of<Kernel>{kernel, at});
        }
    }
};

/// Zeros whose pages are allocated when they are first accessed.
template <class T>
class untouched {
  public:
    explicit untouched(extent count)
        : data_(static_cast<T*>(std::calloc(static_cast<std::size_t>(count), sizeof(T))), &std::free) {
        REQUIRE(data_ != nullptr);
    }
    T* get() const { return data_.get(); }
    T& operator[](extent i) const { return data_.get()[i]; }

  private:
    std::unique_ptr<T, void (*)(void*)> data_;
};

TEST_CASE("grids: an embedding of rows that are wider than a grid is high") {
    corner_device device;
    constexpr extent width = most_folds * 128 + 77;  // odd: one element a thread
    const untouched<float> table(2 * width), out(2 * width), slopes(2 * width), of_positions(width);
    const std::int32_t tokens[] = {1, 0};
    for (extent i = 0; i < 2; ++i) {
        table[i * width] = static_cast<float>(i + 3);
        table[i * width + width - 1] = static_cast<float>(i + 5);
    }
    const ht::view<const std::int32_t, 1> rows(tokens, {2});
    using embedding = ht::kernel::embedding<corner_device>;
    embedding::forward(
        device, ht::kernel::embedding_forward<float, float>{.tokens = rows,
                                                            .table = ht::view<const float, 2>(table.get(), {2, width}),
                                                            .out = ht::view<float, 2>(out.get(), {2, width})});
    CHECK(out[0] == 4);
    CHECK(out[width] == 3);
    CHECK(out[width - 1] == 6);
    CHECK(out[2 * width - 1] == 5);

    for (extent i = 0; i < 2; ++i) {
        out[i * width] = static_cast<float>(1 + i);
        out[(i + 1) * width - 1] = static_cast<float>(8 + i);
    }
    embedding::backward(
        device,
        ht::kernel::embedding_backward<float, float>{.tokens = rows,
                                                     .dy = ht::view<const float, 2>(out.get(), {2, width}),
                                                     .dtable = ht::view<float, 2>(slopes.get(), {2, width}),
                                                     .dpositions = ht::view<float, 2>(of_positions.get(), {1, width}),
                                                     .mode = ht::write_mode::add});
    CHECK(slopes[0] == 2);
    CHECK(slopes[width] == 1);
    CHECK(slopes[width - 1] == 9);
    CHECK(slopes[2 * width - 1] == 8);
    CHECK(of_positions[0] == 3);
    CHECK(of_positions[width - 1] == 17);
}

TEST_CASE("grids: products whose columns need more than 65,535 tiles") {
    corner_device device;
    constexpr extent n = most_folds * 128 + 131;
    const untouched<float> b(n), c(n);
    float a[] = {3};
    b[0] = 5, b[n - 1] = 7;
    const ht::view<const float, 2> one(a, {1, 1});
    ht::matmul<ht::full_fp32>(device, one, ht::view<const float, 2>(b.get(), {1, n}),
                              ht::view<float, 2>(c.get(), {1, n}));
    CHECK(c[0] == 15);
    CHECK(c[n - 1] == 21);
    c[0] = c[n - 1] = 0;
    ht::matmul<ht::full_fp32>(device, ht::view<const float, 2>(b.get(), {n, 1}), one,
                              ht::view<float, 2>(c.get(), {n, 1}));
    CHECK(c[0] == 15);
    CHECK(c[n - 1] == 21);
}

TEST_CASE("grids: copies of operands whose lines are longer than a grid is high") {
    corner_device device;
    {
        constexpr extent length = most_folds * 1024 + 5, lines = 3;
        using bits = std::uint16_t;
        const untouched<bits> from(lines * (length + 1)), to(lines * (length + 3));
        from[0] = 7, from[lines * (length + 1) - 2] = 9;
        device.launch(on_device::aligned_copy_kernel<bits>{{from.get(), lines * (length + 1)},
                                                           {to.get(), lines * (length + 3)},
                                                           length + 1,
                                                           length + 3,
                                                           static_cast<int>(lines),
                                                           static_cast<int>(length),
                                                           256});
        CHECK(to[0] == 7);
        CHECK(to[lines * (length + 3) - 4] == 9);
    }
    {
        using kernel = on_device::along_depth_kernel<ht::float8_e4m3>;
        constexpr extent outer = 40, depth = most_folds * kernel::depth_tile + 16;
        const untouched<ht::float8_e4m3> from(outer * depth), to(outer * depth);
        from[0] = ht::float8_e4m3(2.0f), from[outer * depth - 1] = ht::float8_e4m3(3.0f);
        const on_device::product_operand<ht::float8_e4m3> operand{
            {from.get(), outer * depth}, outer,
            static_cast<int>(outer),     static_cast<int>(depth),
            on_device::along::outer,     on_device::row_access::chunks};
        device.launch(kernel{operand, {to.get(), outer * depth}, depth, true});
        CHECK(static_cast<float>(to[0]) == 2);
        CHECK(static_cast<float>(to[outer * depth - 1]) == 3);
    }
}

TEST_CASE("grids: more rows or elements than a grid has blocks for are refused before anything runs") {
    corner_device device;
    alignas(64) float no_memory[16] = {};
    constexpr extent rows = extent{1} << 31, all = extent{1} << 42;
    const ht::view<float, 2> column(no_memory, {rows, 1});
    const ht::view<const float, 2> read(column);
    CHECK_THROWS_WITH_AS((ht::kernel::softmax<corner_device>::forward(
                             device, ht::kernel::softmax_forward<float, float>{.x = read, .y = column})),
                         doctest::Contains("a kernel's launch: 2147483648 blocks; a GPU's grid has at most 2147483647"),
                         ht::shape_error);
    CHECK_THROWS_AS((ht::kernel::softmax<corner_device>::backward(
                        device, ht::kernel::softmax_backward<float, float>{.y = read, .dy = read, .dx = column})),
                    ht::shape_error);
    const ht::view<float, 1> line(no_memory, {all});
    CHECK_THROWS_AS(ht::map(
                        device, [](auto x) { return x + 1; }, line, line),
                    ht::shape_error);
    CHECK_THROWS_AS(
        (ht::kernel::dropout<corner_device>::run(device, ht::view<const float, 1>(line), ht::view<const float, 1>(),
                                                 line, ht::kernel::dropout_draw::of(nullptr, 0, 0.0f))),
        ht::shape_error);
    CHECK_THROWS_AS(device.launch(on_device::count_nonfinite_kernel<float, on_device::run_access::elements>{
                        {no_memory, all << 10}, {nullptr, all >> 4}}),
                    ht::shape_error);
    // The largest grids.
    CHECK(ht::simt::blocks_for(extent{2147483647} * 256, 256).x == 2147483647);
    CHECK_THROWS_AS(static_cast<void>(ht::simt::blocks_for(extent{2147483647} * 256 + 1, 256)), ht::shape_error);
    for (const extent wanted : {extent{1}, most_folds, most_folds + 1, 3 * most_folds, extent{10'000'000}}) {
        const grid_shape g = ht::simt::folded({7, 1, 1}, wanted);
        CHECK(g.x == 7);
        CHECK(g.y <= most_folds);
        CHECK(extent{g.y} * g.z >= wanted);
        CHECK(extent{g.y} * (g.z - 1) < wanted);
        CHECK(ht::simt::folded_row({0, static_cast<int>((wanted - 1) % most_folds), g.z - 1}) == wanted - 1);
    }
}

struct high_kernel {
    static constexpr int threads = 32;
    static constexpr ht::simt::word shared_bytes = 0;
    int y, z;
    grid_shape grid() const { return {1, y, z}; }
    void operator()(emulator::thread_handle) const {}
};

TEST_CASE("grids: the emulated device has CUDA's limits") {
    emulator::device device;
    CHECK_THROWS_AS(device.launch(high_kernel{65536, 1}), emulator::failure);
    CHECK_THROWS_AS(device.launch(high_kernel{1, 65536}), emulator::failure);
    CHECK_NOTHROW(device.launch(high_kernel{3, 2}));
}

}  // namespace emulator_kernel_grids_tests
