// SPDX-License-Identifier: MIT
/// \file
/// .npy files both ways, checksums, number types, and DLPack's structures.
#include <algorithm>
#include <cmath>
#include <random>

#include <doctest/doctest.h>

#include <halftone/io/checkpoint/verify.hpp>
#include <halftone/io/dlpack.hpp>
#include <halftone/io/npy.hpp>

#include "support/temporary_folder.hpp"

namespace io_arrays_tests {

namespace ht = halftone;

std::string npy(int version, const std::string& header, std::size_t room) {
    std::string bytes = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
    for (int i = 0; i < (version == 1 ? 2 : 4); ++i) bytes += static_cast<char>(header.size() >> (8 * i));
    return bytes + header + std::string(room, '\0');
}

TEST_CASE("npy: numpy's file is read, and written with the same bytes") {
    const std::string golden = HALFTONE_TEST_DATA "/array.npy";
    const auto a = ht::read_npy<float, 2>(golden);
    CHECK(a.shape() == ht::shape<2>{2, 3});
    for (int i = 0; i < 6; ++i) CHECK(a.data()[i] == static_cast<float>(i) / 4);
    const support::temporary_folder folder;
    ht::write_npy(folder.path() / "a.npy", a);
    CHECK(support::temporary_folder::read(folder.path() / "a.npy") == support::temporary_folder::read(golden));
    CHECK(ht::read_npy<double, 2>(golden)(1, 2) == 1.25);
    CHECK_THROWS_AS((ht::read_npy<float, 1>(golden)), ht::npy_error);
    CHECK_THROWS_AS((ht::read_npy<int, 2>(golden)), ht::npy_error);
}

template <class T>
void round_trip() {
    const support::temporary_folder folder;
    const std::vector<T> values{T(0), T(1), T(2), T(3)};
    for (const std::vector<ht::extent>& shape : {std::vector<ht::extent>{4}, {2, 2}, {1, 4, 1}}) {
        ht::write_npy<T>(folder.path() / "t.npy", shape, std::span<const T>(values));
        const ht::npy_array back = ht::read_npy(folder.path() / "t.npy");
        CHECK(back.shape == shape);
        std::vector<T> got(4);
        ht::convert(back.type, back.bytes.data(), ht::dtype_of<T>, reinterpret_cast<std::byte*>(got.data()), 4);
        CHECK(got == values);
    }
    ht::write_npy<T>(folder.path() / "s.npy", {}, std::span<const T>(values).first(1));
    CHECK(ht::read_npy(folder.path() / "s.npy").shape.empty());
    ht::write_npy<T>(folder.path() / "e.npy", {0, 5}, {});
    CHECK(ht::read_npy(folder.path() / "e.npy").shape == std::vector<ht::extent>{0, 5});
}

TEST_CASE("npy: round trips") {
    round_trip<std::int8_t>(), round_trip<std::uint8_t>(), round_trip<std::int16_t>(), round_trip<std::uint16_t>();
    round_trip<std::int32_t>(), round_trip<std::uint32_t>(), round_trip<std::int64_t>(), round_trip<std::uint64_t>();
    round_trip<ht::float16>(), round_trip<ht::bfloat16>(), round_trip<float>(), round_trip<double>();
    round_trip<ht::float8_e4m3>(), round_trip<ht::float8_e5m2>();
}

TEST_CASE("npy: versions 1 to 3 are read, malformed files are refused") {
    const support::temporary_folder folder;
    const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
    for (const int version : {1, 2, 3}) CHECK(ht::read_npy(folder.write("g", npy(version, good, 8))).bytes.size() == 8);
    CHECK(ht::read_npy(folder.write("g", npy(1, "{\"shape\":(1,2),'fortran_order':False,'descr':'|u1'}", 2))).shape.size() == 2);
    const auto refused = [&](const std::string& bytes, const char* sentence) {
        const auto path = folder.write("bad.npy", bytes);
        CAPTURE(sentence);
        try {
            ht::read_npy(path);
            FAIL("it was taken");
        } catch (const ht::npy_error& e) {
            CHECK(std::string(e.what()).find(sentence) != std::string::npos);
        }
    };
    const auto header = [&](const std::string& text, const char* sentence) { refused(npy(1, text, 8), sentence); };
    refused("", "expected a .npy file's 10 or more");
    refused(std::string(20, 'x'), "does not begin as a .npy file does");
    refused(npy(4, good, 8), "version 4.0; expected 1.0, 2.0 or 3.0");
    refused(npy(1, good, 7), "7 bytes of elements; expected 8");
    refused(npy(1, good, 9), "9 bytes of elements; expected 8");
    refused(npy(1, good, 8).substr(0, 30), "a header of 58 bytes in a file of 30");
    refused(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12), "a header of 4294967295 bytes");
    header("", "expected '{'");
    header("{'descr': '<f4'", "expected '}'");
    header("{'descr': '<f4', 'shape': (2,)}", "fortran_order or shape is missing");
    header("{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", "descr is '>f4'");
    // What numpy.save writes of ml_dtypes' bfloat16, float8_e4m3fn and float8_e5m2.
    for (const char* const lost : {"<V2", "<V1", "<f1"}) {
        const std::string said =
            std::string("descr is '") + lost +
            "': of types beside its own, as ml_dtypes' bfloat16, NumPy stores the size alone; save a.astype('<f4')";
        header(std::string("{'descr': '") + lost + "', 'fortran_order': False, 'shape': (2,)}", said.c_str());
    }
    header("{'descr': '<c8', 'fortran_order': False, 'shape': (2,)}", "descr is '<c8'; expected a little-endian");
    header("{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", "fortran_order is not False");
    header("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "descr occurs twice");
    header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", "it has the key 'x'");
    header("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "an extent is no integer of 0 or more");
    header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "an extent is 2^63 or more");
    header("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "more elements than fit");
    header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", "something after the dictionary");
    header("{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}", "expected");
    header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "expected '\"'");
}

TEST_CASE("io: the checksum is zlib's CRC-32") {
    const auto sum = [](const std::string& text, std::size_t cut) {
        ht::detail::crc32 s;
        s.add(text.data(), cut), s.add(text.data() + cut, text.size() - cut);
        return s.value();
    };
    for (std::size_t cut = 0; cut <= 9; ++cut) CHECK(sum("123456789", cut) == 0xcbf43926u);
    const std::string long_text = "The quick brown fox jumps over the lazy dog";
    for (std::size_t cut = 0; cut <= long_text.size(); ++cut) CHECK(sum(long_text, cut) == 0x414fa339u);
    CHECK(sum("", 0) == 0);
}

TEST_CASE("io: the checksum of long pieces, wherever they begin and end, is that of their bits; of joined pieces, too") {
    std::mt19937 random(1);
    std::string text;
    for (int i = 0; i < 3000; ++i) text += static_cast<char>(random());
    const auto defined = [](const char* bytes, std::size_t count) {  // bit by bit
        std::uint32_t value = ~std::uint32_t{0};
        for (std::size_t i = 0; i < count; ++i) {
            value ^= static_cast<unsigned char>(bytes[i]);
            for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320u : 0u);
        }
        return ~value;
    };
    for (const std::size_t first : {0u, 1u, 7u, 16u, 33u}) {
        for (const std::size_t count : {255u, 256u, 257u, 319u, 320u, 383u, 1000u, 2944u}) {
            CAPTURE(first);
            CAPTURE(count);
            const std::uint32_t expected = defined(text.data() + first, count);
            for (const std::size_t cut : {std::size_t{0}, std::size_t{5}, count / 2, count}) {
                ht::detail::crc32 whole, a, b;
                whole.add(text.data() + first, cut), whole.add(text.data() + first + cut, count - cut);
                CHECK(whole.value() == expected);
                a.add(text.data() + first, cut), b.add(text.data() + first + cut, count - cut);
                CHECK(ht::detail::crc32_joined(a.value(), b.value(), count - cut) == expected);
            }
        }
    }
}

TEST_CASE("io: a large file is read whole by several threads, with the sum of all its bytes") {
    std::string text((std::size_t{33} << 20) + 12345, 'a');
    for (std::size_t i = 0; i < text.size(); i += 1 + i / 3000) text[i] = static_cast<char>(i * 31);
    const support::temporary_folder folder;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{16} << 20, text.size()}) {
        const ht::detail::input_file in(folder.write("large", text.substr(0, size)));
        std::string back(size, '\0');
        ht::detail::crc32 sum;
        sum.add(text.data(), size);
        CHECK(ht::detail::read_and_sum(in, reinterpret_cast<std::byte*>(back.data())) == sum.value());
        CHECK(back == text.substr(0, size));
        if (size == 0) continue;
        std::filesystem::resize_file(folder.path() / "large", size - 1);  // found by the thread that reads the end
        CHECK_THROWS_AS(ht::detail::read_and_sum(in, reinterpret_cast<std::byte*>(back.data())), ht::io_error);
    }
}

TEST_CASE("io: numbers are converted between all floating-point types, each rounded once") {
    const float values[]{0, -1.5f, 0.1f, 448, 3e38f, std::ldexp(1.0f, -20)};
    for (int t = 0; t < ht::detail::dtypes; ++t) {
        const auto type = static_cast<ht::dtype>(t);
        if (!ht::is_float(type)) continue;
        std::byte there[48];
        float back[6];
        ht::convert(ht::dtype::f32, reinterpret_cast<const std::byte*>(values), type, there, 6);
        ht::convert(type, there, ht::dtype::f32, reinterpret_cast<std::byte*>(back), 6);
        ht::detail::with_float_type(type, [&]<class T>() {
            for (int i = 0; i < 6; ++i) {
                const auto expected = static_cast<float>(static_cast<T>(values[i]));
                CHECK((back[i] == expected || (std::isnan(back[i]) && std::isnan(expected))));
            }
        });
    }
    const double once = 1 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40);  // by way of float it would be rounded down
    ht::bfloat16 result{};
    ht::convert(ht::dtype::f64, reinterpret_cast<const std::byte*>(&once), ht::dtype::bf16, reinterpret_cast<std::byte*>(&result), 1);
    CHECK(static_cast<float>(result) == 1 + 0x1p-7f);
    std::byte to[8];
    CHECK_THROWS_AS(ht::convert(ht::dtype::i32, to, ht::dtype::f32, to, 1), ht::argument_error);
}

template <class T>
void through_dlpack() {
    T values[6];
    for (int i = 0; i < 6; ++i) values[i] = static_cast<T>(i % 2);
    const auto owner = std::make_shared<int>(1);
    const ht::view<T, 2> strided(values, {3, 2}, {1, 3});
    {
        const ht::dlpack_tensor<T, 2> x(ht::to_dlpack(strided, owner));
        CHECK(owner.use_count() == 2);
        CHECK(x.view().data() == values);
        CHECK(x.view().shape() == strided.shape());
        CHECK(x.view().strides() == strided.strides());
        CHECK(x.device().type == ht::dl_device_type::cpu);
        const ht::dlpack_tensor<const T, 2> old(ht::to_dlpack_unversioned(strided, owner));
        CHECK(owner.use_count() == 3);
        CHECK(old.view()(2, 1) == values[5]);
    }
    CHECK(owner.use_count() == 1);
}

TEST_CASE("dlpack: tensors out and in, without a copy") {
    through_dlpack<float>(), through_dlpack<double>(), through_dlpack<ht::float16>(), through_dlpack<ht::bfloat16>();
    through_dlpack<std::int8_t>(), through_dlpack<std::int64_t>(), through_dlpack<std::uint16_t>(), through_dlpack<bool>();
    through_dlpack<ht::float8_e4m3>(), through_dlpack<ht::float8_e5m2>();
    static_assert(sizeof(ht::dl_tensor) == 48 && sizeof(ht::dl_managed_tensor) == 64 &&
                  sizeof(ht::dl_managed_tensor_versioned) == 80 && sizeof(ht::dl_data_type) == 4);
}

TEST_CASE("dlpack: elements that appear twice may be read, but not written") {
    float values[12] = {1, 2, 3, 4, 5, 6};
    struct {
        ht::shape<2> shape, strides;
        bool is_writable;
        const char* text;  // of shape and strides
    } const all[]{
        {{3, 4}, {0, 1}, false, "(3, 4) is written to and overlaps itself; its strides are (0, 1)"},  // torch's expand
        {{3, 4}, {0, 0}, false, "(3, 4) is written to and overlaps itself; its strides are (0, 0)"},
        {{3, 4},
         {2, 1},
         false,
         "(3, 4) is written to and overlaps itself; its strides are (2, 1)"},  // numpy's sliding_window_view
        {{3, 3}, {-2, 1}, false, "(3, 3) is written to and overlaps itself; its strides are (-2, 1)"},
        {{3, 4}, {1, 3}, true, ""},
        {{3, 2}, {-3, 1}, true, ""},
        {{1, 4}, {0, 1}, true, ""},
        {{0, 4}, {0, 0}, true, ""},
    };
    for (const auto& each : all) {
        CAPTURE(each.text);
        float* const first = each.strides[0] < 0 ? values + 6 : values;
        for (const bool is_versioned : {true, false}) {
            const auto take = [&]<class T>(T*) {
                const ht::view<float, 2> v(first, each.shape, each.strides);
                if (is_versioned) return ht::dlpack_tensor<T, 2>(ht::to_dlpack(v)).view();
                return ht::dlpack_tensor<T, 2>(ht::to_dlpack_unversioned(v)).view();
            };
            const auto read = take(static_cast<const float*>(nullptr));
            CHECK(read.shape() == each.shape);
            CHECK(read.strides() == each.strides);
            if (each.is_writable) {
                CHECK(take(static_cast<float*>(nullptr)).strides() == each.strides);
                continue;
            }
            const std::string said = std::string("dlpack: the tensor ") + each.text +
                                     "; take it as a dlpack_tensor<const T, Rank>, or a copy";
            CHECK_THROWS_WITH_AS(take(static_cast<float*>(nullptr)), said.c_str(), ht::argument_error);
        }
    }
}
TEST_CASE("dlpack: what is not the type, the rank or writable is refused, and stays the caller's") {
    float values[6] = {};
    const ht::const_view<float, 2> v(values, {2, 3});
    ht::dl_managed_tensor_versioned* const m = ht::to_dlpack(v);
    CHECK_THROWS_WITH_AS((ht::dlpack_tensor<float, 2>(m)),
                         "dlpack: the tensor may only be read; take it as a dlpack_tensor<const T, Rank>", ht::argument_error);
    CHECK_THROWS_AS((ht::dlpack_tensor<const double, 2>(m)), ht::argument_error);
    CHECK_THROWS_AS((ht::dlpack_tensor<const float, 1>(m)), ht::argument_error);
    m->version.major = 2;
    CHECK_THROWS_AS((ht::dlpack_tensor<const float, 2>(m)), ht::argument_error);
    m->version.major = 1;
    m->tensor.byte_offset = 1;
    CHECK_THROWS_AS((ht::dlpack_tensor<const float, 2>(m)), ht::argument_error);
    m->tensor.byte_offset = 4;
    m->tensor.strides = nullptr;
    const ht::dlpack_tensor<const float, 2> taken(m);
    CHECK(taken.view().data() == values + 1);
    CHECK(taken.view().strides() == ht::shape<2>{3, 1});
    CHECK_THROWS_AS((ht::dlpack_tensor<const float, 2>(static_cast<ht::dl_managed_tensor*>(nullptr))), ht::argument_error);
}

}  // namespace io_arrays_tests
