// SPDX-License-Identifier: MIT
/// \file
/// Files of Python's safetensors are read, for every type; ours have the bytes that Python has read; every malformed file
/// is refused with its sentence. tests/golden/tensor_files.py wrote the former and read the latter.
#include <cstdlib>

#include <doctest/doctest.h>

#include <halftone/io/safetensors.hpp>
#include <halftone/io/safetensors_writer.hpp>

#include "support/temporary_folder.hpp"

namespace io_safetensors_tests {

namespace ht = halftone;

const std::string golden = HALFTONE_TEST_DATA "/safetensors_types.safetensors";

/// The values that golden/tensor_files.py gives the six elements of a type.
template <class T>
std::vector<T> values_of() {
    std::vector<T> values;
    for (int i = 0; i < 6; ++i) {
        if constexpr (std::is_same_v<T, bool>) values.push_back(i % 2 != 0);
        else if constexpr (std::is_integral_v<T>) values.push_back(static_cast<T>(20 * i));
        else values.push_back(static_cast<T>(static_cast<float>(i - 2) * 0.25f));
    }
    return values;
}

template <class T>
void check_type(const ht::safetensors_file& file) {
    const std::string name = std::string("of.") + ht::name(ht::dtype_of<T>);
    CAPTURE(name);
    const ht::tensor_info* const t = file.find(name);
    REQUIRE(t != nullptr);
    CHECK(t->type == ht::dtype_of<T>);
    CHECK(t->shape == std::vector<ht::extent>{2, 3});
    CHECK(file.read<T>(name) == values_of<T>());
}

void check_types(const ht::safetensors_file& file) {
    check_type<bool>(file), check_type<std::uint8_t>(file), check_type<std::int8_t>(file);
    check_type<std::uint16_t>(file), check_type<std::int16_t>(file), check_type<std::uint32_t>(file);
    check_type<std::int32_t>(file), check_type<std::uint64_t>(file), check_type<std::int64_t>(file);
    check_type<ht::float8_e5m2>(file), check_type<ht::float8_e4m3>(file), check_type<ht::float16>(file);
    check_type<ht::bfloat16>(file), check_type<float>(file), check_type<double>(file);
    CHECK(file.tensors().size() == 18);
    CHECK(file.find("scalar")->shape.empty());
    CHECK(file.read<double>("scalar") == std::vector<double>{1.5});  // converted
    CHECK(file.find("empty")->shape == std::vector<ht::extent>{0, 3});
    CHECK(file.read<ht::bfloat16>("empty").empty());
    CHECK(file.read<float>("name with \"quotes\", \xc3\xa4 and \xe4\xb8\xad") == std::vector<float>{7});
    CHECK(file.find("no") == nullptr);
}

template <class T>
ht::tensor_source source_of() {
    static const std::vector<T> values = values_of<T>();
    return ht::tensor_source::of<T>(std::string("of.") + ht::name(ht::dtype_of<T>), {2, 3}, std::span<const T>(values));
}

std::vector<ht::tensor_source> all_sources() {
    static const float scalar = 1.5f, seven = 7;
    static const bool bools[]{false, true, false, true, false, true};
    return {ht::tensor_source::of<bool>("of.BOOL", {2, 3}, bools),
            source_of<std::uint8_t>(), source_of<std::int8_t>(), source_of<std::uint16_t>(), source_of<std::int16_t>(),
            source_of<std::uint32_t>(), source_of<std::int32_t>(), source_of<std::uint64_t>(), source_of<std::int64_t>(),
            source_of<ht::float8_e5m2>(), source_of<ht::float8_e4m3>(), source_of<ht::float16>(), source_of<ht::bfloat16>(),
            source_of<float>(), source_of<double>(),
            ht::tensor_source::of<float>("scalar", {}, std::span<const float>(&scalar, 1)),
            ht::tensor_source::of<ht::bfloat16>("empty", {0, 3}, {}),
            ht::tensor_source::of<float>("name with \"quotes\", \xc3\xa4 and \xe4\xb8\xad", {1}, std::span<const float>(&seven, 1))};
}

/// A file with this header, which is as long as it says, and `room` bytes behind it.
std::string file_of(const std::string& header, std::size_t room) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i));
    return bytes + header + std::string(room, 'x');
}

TEST_CASE("safetensors: what Python wrote is read, for every type") {
    const ht::safetensors_file file(golden);
    check_types(file);
    CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}, {"written by", "Python"}});
    CHECK_THROWS_WITH_AS(file.read<float>("no"), (golden + ": there is no 'no'").c_str(), ht::safetensors_error);
    CHECK_THROWS_WITH_AS(file.read<float>("of.I8"), (golden + ": 'of.I8' is I8, which is not converted to F32").c_str(),
                         ht::safetensors_error);
}

TEST_CASE(
    "safetensors: a tensor of a type that halftone lacks is described, and refused only where its numbers are asked "
    "for") {
    // All of the 22 types of safetensors 0.8 that check_types has not.
    const std::string others = HALFTONE_TEST_DATA "/safetensors_other_types.safetensors";
    const ht::safetensors_file file(others);
    CHECK(file.read<float>("bias") == std::vector<float>{1, 2, 3, 4});
    const std::pair<ht::dtype, std::size_t> bits[]{
        {ht::dtype::c64, 64},    {ht::dtype::f8_e8m0, 8}, {ht::dtype::f8_e4m3fnuz, 8}, {ht::dtype::f8_e5m2fnuz, 8},
        {ht::dtype::f6_e2m3, 6}, {ht::dtype::f6_e3m2, 6}, {ht::dtype::f4, 4}};
    CHECK(file.tensors().size() == 1 + std::size(bits));
    const support::temporary_folder folder;
    std::vector<ht::tensor_source> copies;
    for (const auto& [type, each] : bits) {
        const std::string name = std::string("of.") + ht::name(type);
        CAPTURE(name);
        const ht::tensor_info* const t = file.find(name);
        REQUIRE(t != nullptr);
        CHECK(t->type == type);
        CHECK(ht::bits_of(type) == each);
        CHECK(t->bytes == each / 2);
        CHECK(t->count() == 4);
        CHECK(!ht::is_float(type));
        CHECK_THROWS_WITH_AS(
            file.read<float>(name),
            (others + ": '" + name + "' is " + ht::name(type) + ", which is not converted to F32").c_str(),
            ht::safetensors_error);
        std::vector<std::byte> bytes(t->bytes);
        file.read(*t, bytes.data());  // its bytes can be copied
        CHECK(bytes.back() == static_cast<std::byte>(each / 2 - 1));
        copies.push_back({name, type, t->shape, [bytes](std::byte* to, std::size_t first, std::size_t count) {
                              std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(first), count, to);
                          }});
    }
    const auto path = folder.path() / "copy.safetensors";
    ht::write_safetensors(path, copies);
    const ht::safetensors_file copy(path);
    for (const ht::tensor_info& t : copy.tensors()) {
        std::vector<std::byte> here(t.bytes), there(t.bytes);
        copy.read(t, here.data()), file.read(*file.find(t.name), there.data());
        CHECK(here == there);
    }
    CHECK_THROWS_WITH_AS(ht::size_of(ht::dtype::f6_e2m3), "size_of: an element of F6_E2M3 has 6 bits",
                         ht::argument_error);
    CHECK(ht::size_of(ht::dtype::c64) == 8);
    copies = {{"a", ht::dtype::f4, {3}, [](std::byte*, std::size_t, std::size_t) {}}};
    CHECK_THROWS_WITH_AS(ht::write_safetensors(path, copies), "write_safetensors: a (3): no valid shape",
                         ht::shape_error);
}

TEST_CASE("safetensors: what halftone writes has the bytes that Python has read") {
    const support::temporary_folder folder;
    const auto path = folder.path() / "ours.safetensors";
    ht::write_safetensors(path, all_sources(), {{"format", "pt"}, {"written by", "halftone"}});
    check_types(ht::safetensors_file(path));
    for (const ht::tensor_info& t : ht::safetensors_file(path).tensors()) CHECK(t.first % ht::size_of(t.type) == 0);
    // HALFTONE_WRITE_GOLDEN=1 writes the file for golden/tensor_files.py to read.
    const std::string kept = HALFTONE_TEST_DATA "/safetensors_ours.safetensors";
    if (std::getenv("HALFTONE_WRITE_GOLDEN") != nullptr) std::filesystem::copy(path, kept, std::filesystem::copy_options::overwrite_existing);
    CHECK(support::temporary_folder::read(path) == support::temporary_folder::read(kept));
    CHECK(!std::filesystem::exists(folder.path() / "ours.safetensors.part"));
}

TEST_CASE("safetensors: malformed files are refused") {
    const std::string one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    struct bad {
        std::string header;
        std::size_t room;
        const char* sentence;
    };
    const std::string tensor = R"("dtype":"F32","shape":[2],"data_offsets":)";
    const bad all[]{
        {"", 0, "the header does not begin with '{'"},
        {"[]", 0, "the header does not begin with '{'"},
        {" " + one, 8, "the header does not begin with '{'"},
        {"{", 0, "is not valid JSON"},
        {one + "x", 8, "is not valid JSON"},
        {one + std::string("\0x", 2), 8, "is not valid JSON: a byte of 0 at"},
        {one + std::string("\0", 1), 8, "is not valid JSON: a byte of 0 at"},
        {std::string("{\"\0\":1}", 7), 0, "is not valid JSON: a byte of 0 at 2 of 7 bytes"},
        {std::string("{\"\xff\":1}"), 0, "is not valid JSON"},  // not UTF-8
        {"{\"a\":" + std::string(100000, '[') + "}", 0, "nested more than 4 deep"},
        {R"({"a":1})", 0, "'a' is not described by an object"},
        {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "'a' has no dtype"},
        {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8, "'a' has no shape"},
        {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "'a' has no data_offsets"},
        {R"({"a":{"dtype":5,"shape":[2],"data_offsets":[0,8]}})", 8, "dtype is not a string"},
        {R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8, "dtype is 'F33'"},
        {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8, "shape is not a list"},
        {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, "an extent is not an integer from 0"},
        {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8, "an extent is not an integer from 0"},
        {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", 8,
         "an extent is not an integer"},
        {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4,4],"data_offsets":[0,0]}})", 0,
         "more elements than fit"},
        {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "more elements than fit"},
        {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, "'a' has 8 bytes; expected 12 for F32 (3)"},
        {R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2, "'a': 3 elements of F4 end within a byte"},
        {R"({"a":{"dtype":"F6_E3M2","shape":[1,2],"data_offsets":[0,2]}})", 2,
         "'a': 2 elements of F6_E3M2 end within a byte"},
        {R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,4]}})", 4, "'a' has 4 bytes; expected 2 for F4 (4)"},
        {R"({"a":{"dtype":"F4","shape":[9223372036854775807,2],"data_offsets":[0,4]}})", 4, "more elements than fit"},
        {R"({"a":{"dtype":"F6_E2M3","shape":[9223372036854775800],"data_offsets":[0,4]}})", 4,
         "'a' has 4 bytes; expected 6917529027641081850"},
        {R"({"a":{)" + tensor + R"([8,0]}})", 8, "'a' ends at 0, before it begins at 8"},
        {R"({"a":{)" + tensor + R"([0]}})", 8, "data_offsets is not a pair"},
        {R"({"a":{)" + tensor + R"([-8,0]}})", 8, "a place is not an integer"},
        {R"({"a":{)" + tensor + R"([4,12]}})", 12, "'a' begins at 4, behind a gap from 0"},
        {R"({"a":{)" + tensor + R"([0,8]},"b":{)" + tensor + R"([4,12]}})", 12,
         "'b' begins at 4, inside of another tensor, which ends at 8"},
        {R"({"a":{)" + tensor + R"([0,8]},"b":{)" + tensor + R"([0,8]}})", 8, "inside of another tensor"},
        {R"({"a":{)" + tensor + R"([0,8]},"b":{)" + tensor + R"([9,17]}})", 17, "'b' begins at 9, behind a gap from 8"},
        {one, 7, "its tensors end after 8 bytes, the file after 7: it is truncated"},
        {one, 9, "its tensors end after 8 bytes, the file after 9: the rest belongs to none"},
        {R"({"a":{)" + tensor + R"([0,8]},"a":{)" + tensor + R"([8,16]}})", 16, "the header has the name 'a' twice"},
        {R"({"a":{"dtype":"F32",)" + tensor + R"([0,8]}})", 8, "the header has the name 'dtype' twice"},
        {R"({"__metadata__":[]})", 0, "__metadata__ is not an object"},
        {R"({"__metadata__":{"a":1}})", 0, "__metadata__: 'a' is not a string"},
    };
    const support::temporary_folder folder;
    for (const bad& b : all) {
        CAPTURE(b.header.substr(0, 120));
        const auto path = folder.write("bad.safetensors", file_of(b.header, b.room));
        try {
            const ht::safetensors_file file(path);
            FAIL("it was taken");
        } catch (const ht::safetensors_error& e) {
            CHECK(std::string(e.what()).find(b.sentence) != std::string::npos);
            CHECK(std::string(e.what()).find(path.string()) == 0);
            CHECK(std::string(e.what()).find('\n') == std::string::npos);
        }
    }
    // Header and metadata that are in order, and fields that the format does not know.
    CHECK(ht::safetensors_file(folder.write("good", file_of("{}  ", 0))).tensors().empty());
    CHECK(ht::safetensors_file(folder.write("good", file_of(R"({"__metadata__":null})", 0))).metadata().empty());
    CHECK(ht::safetensors_file(folder.write("good", file_of(R"({"a":{"more":{},)" + tensor + "[0,8]}}", 8))).tensors().size() == 1);
}

TEST_CASE("safetensors: files whose lengths are wrong are refused before anything is allocated") {
    const support::temporary_folder folder;
    const auto refused = [&](const std::string& bytes, const char* sentence) {
        const auto path = folder.write("bad.safetensors", bytes);
        CHECK_THROWS_WITH_AS(ht::safetensors_file{path}, (path.string() + ": " + sentence).c_str(), ht::safetensors_error);
    };
    refused("", "0 bytes; expected 8 or more, the header's length");
    refused("1234567", "7 bytes; expected 8 or more, the header's length");
    refused(std::string(8, '\xff'), "a header of 18446744073709551615 bytes; expected 100000000 at most");
    refused(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8), "a header of 100000001 bytes; expected 100000000 at most");
    refused(std::string("\0\xe1\xf5\x05\0\0\0\0", 8), "a header of 100000000 bytes in a file of 8: it is truncated");
    refused(std::string("\x03\0\0\0\0\0\0\0{}", 10), "a header of 3 bytes in a file of 10: it is truncated");
    CHECK_THROWS_AS(ht::safetensors_file(folder.path() / "missing"), ht::io_error);
    CHECK_THROWS_AS(ht::safetensors_file{folder.path()}, ht::io_error);
    CHECK_THROWS_AS(ht::safetensors_file{"/dev/zero"}, ht::io_error);
}

TEST_CASE("safetensors: every prefix of a file, and every file with a byte changed in its header's length, is refused") {
    const support::temporary_folder folder;
    const std::string whole = support::temporary_folder::read(golden);
    for (std::size_t size = 0; size < whole.size(); size += 7) {
        CHECK_THROWS_AS(ht::safetensors_file{folder.write("cut", whole.substr(0, size))}, ht::safetensors_error);
    }
    for (std::size_t i = 0; i < 8; ++i) {
        std::string changed = whole;
        changed[i] = static_cast<char>(changed[i] ^ 0x10);
        CHECK_THROWS_AS(ht::safetensors_file{folder.write("changed", changed)}, ht::safetensors_error);
    }
}

TEST_CASE("safetensors: a write that fails leaves the earlier file") {
    const support::temporary_folder folder;
    const auto path = folder.path() / "w.safetensors";
    const float x = 3;
    const auto good = ht::tensor_source::of<float>("x", {}, std::span<const float>(&x, 1));
    ht::write_safetensors(path, {good});
    const std::string before = support::temporary_folder::read(path);
    CHECK_THROWS_WITH_AS(ht::write_safetensors(path, {good, good}), "write_safetensors: a tensor cannot be called x twice",
                         ht::argument_error);
    ht::tensor_source failing = good;
    failing.read = [](std::byte*, std::size_t, std::size_t) { throw ht::io_error("stop"); };
    CHECK_THROWS_AS(ht::write_safetensors(path, {failing}), ht::io_error);
    failing = good, failing.name = "\xff";
    CHECK_THROWS_WITH_AS(ht::write_safetensors(path, {failing}), "write_safetensors: a name or metadata is not UTF-8",
                         ht::argument_error);
    CHECK_THROWS_AS(ht::tensor_source::of<float>("x", {2}, std::span<const float>(&x, 1)), ht::shape_error);
    CHECK(support::temporary_folder::read(path) == before);
    CHECK(!std::filesystem::exists(folder.path() / "w.safetensors.part"));
    CHECK_THROWS_AS(ht::write_safetensors(folder.path() / "no" / "w.safetensors", {good}), ht::io_error);
    if (std::filesystem::exists("/dev/full")) {
        std::filesystem::create_symlink("/dev/full", folder.path() / "w.safetensors.part");
        CHECK_THROWS_AS(ht::write_safetensors(path, {good}), ht::io_error);
        CHECK(support::temporary_folder::read(path) == before);
    } else {
        MESSAGE("not checked: a full disk (there is no /dev/full)");
    }
}

}  // namespace io_safetensors_tests
