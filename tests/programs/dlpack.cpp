// SPDX-License-Identifier: MIT
/// \file
/// The library of tests/programs/dlpack.py: makes tensors for other libraries, and reads those that they hand over.
///
/// An element of a tensor that it makes is (3 row + column) mod 8, a number of every type but bool, which has (row + column) mod 2.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <halftone/io/dlpack.hpp>

namespace ht = halftone;
using ht::extent;

namespace {

/// The owners that no deleter has released yet.
int owners = 0;
std::string message;

struct counted {
    counted() { ++owners; }
    ~counted() { --owners; }
    counted(const counted&) = delete;
};

template <class T>
struct memory : counted {
    std::unique_ptr<T[]> values{new T[64]()};  // std::vector<bool> has no addresses
};

/// How the elements of 3 rows and 4 columns lie in memory.
ht::view<int, 2> layout_of(const std::string& name) {
    int* const none = nullptr;
    if (name == "columns") return {none, {3, 4}, {1, 3}};
    if (name == "apart") return {none, {3, 4}, {16, 2}};
    if (name == "reversed") return {none, {3, 4}, {-4, -1}};
    if (name == "empty") return {none, {0, 4}, {4, 1}};
    return {none, {3, 4}, {4, 1}};
}

template <class T>
T element(extent row, extent column) {
    if constexpr (std::is_same_v<T, bool>) return (row + column) % 2 == 1;
    else return static_cast<T>(static_cast<float>((3 * row + column) % 8));
}

template <class T>
void* made(const std::string& layout, bool is_versioned, bool is_read_only, int device) {
    const auto owner = std::make_shared<memory<T>>();
    const ht::view<int, 2> form = layout_of(layout);
    T* const first = owner->values.get() + (layout == "reversed" ? 11 : 1);
    const ht::view<T, 2> v(first, form.shape(), form.strides());
    for (extent r = 0; r < v.extent_of(0); ++r) {
        for (extent c = 0; c < v.extent_of(1); ++c) v(r, c) = element<T>(r, c);
    }
    const ht::dl_device place{static_cast<ht::dl_device_type>(device), 0};
    if (layout == "scalar") return ht::to_dlpack(ht::view<T, 0>(first, {}), owner, place);
    if (!is_versioned) return ht::to_dlpack_unversioned(v, owner, place);
    if (is_read_only) return ht::to_dlpack(ht::view<const T, 2>(v), owner, place);
    return ht::to_dlpack(v, owner, place);
}

/// What dlpack.py is told of a tensor that was taken.
struct description {
    std::int64_t shape[3], strides[3];
    double values[64];
    std::int32_t device[2];
    void* data;
};

template <class T, int Rank, class Managed>
void take_as(void* managed, description& d) {
    const ht::dlpack_tensor<T, Rank> x(static_cast<Managed*>(managed));
    for (int axis = 0; axis < Rank; ++axis) d.shape[axis] = x.view().extent_of(axis), d.strides[axis] = x.view().stride_of(axis);
    d.device[0] = static_cast<std::int32_t>(x.device().type), d.device[1] = x.device().id;
    d.data = const_cast<void*>(static_cast<const void*>(x.view().data()));
    if (x.device().type != ht::dl_device_type::cpu) return;
    for (extent i = 0; i < x.view().size() && i < 64; ++i) {
        extent rest = i, place = 0;
        for (int axis = Rank - 1; axis >= 0; --axis) {
            place += rest % d.shape[axis] * d.strides[axis];
            rest /= d.shape[axis];
        }
        const T value = x.view().data()[place];
        if constexpr (std::is_integral_v<T>) d.values[i] = static_cast<double>(value);
        else d.values[i] = static_cast<double>(static_cast<float>(value));
    }
}

template <class T>
bool taken(void* managed, int rank, bool is_versioned, bool writes, description& d) {
    const auto by_structure = [&]<class U, int Rank>(std::integral_constant<int, Rank>, U*) {
        if (is_versioned) take_as<U, Rank, ht::dl_managed_tensor_versioned>(managed, d);
        else take_as<U, Rank, ht::dl_managed_tensor>(managed, d);
    };
    const auto of_rank = [&]<class U>(U* which) {
        if (rank == 0) by_structure(std::integral_constant<int, 0>{}, which);
        else if (rank == 2) by_structure(std::integral_constant<int, 2>{}, which);
        else by_structure(std::integral_constant<int, 3>{}, which);
    };
    try {
        if (writes) of_rank(static_cast<T*>(nullptr));
        else of_rank(static_cast<const T*>(nullptr));
        return true;
    } catch (const ht::argument_error& e) {
        message = e.what();
        return false;
    }
}

/// Calls f<T>() for the type of a name, which is NumPy's or PyTorch's.
template <class F>
auto with_type(const std::string& name, const F& f) {
    if (name == "int8") return f.template operator()<std::int8_t>();
    if (name == "int16") return f.template operator()<std::int16_t>();
    if (name == "int32") return f.template operator()<std::int32_t>();
    if (name == "int64") return f.template operator()<std::int64_t>();
    if (name == "uint8") return f.template operator()<std::uint8_t>();
    if (name == "uint16") return f.template operator()<std::uint16_t>();
    if (name == "uint32") return f.template operator()<std::uint32_t>();
    if (name == "uint64") return f.template operator()<std::uint64_t>();
    if (name == "bool") return f.template operator()<bool>();
    if (name == "float16") return f.template operator()<ht::float16>();
    if (name == "bfloat16") return f.template operator()<ht::bfloat16>();
    if (name == "float8_e4m3fn") return f.template operator()<ht::float8_e4m3>();
    if (name == "float8_e5m2") return f.template operator()<ht::float8_e5m2>();
    if (name == "float64") return f.template operator()<double>();
    return f.template operator()<float>();
}

}  // namespace

extern "C" {

/// A managed tensor, versioned or not.
void* halftone_make(const char* type, const char* layout, int is_versioned, int is_read_only, int device) {
    return with_type(type, [&]<class T>() { return made<T>(layout, is_versioned != 0, is_read_only != 0, device); });
}
/// Takes a managed tensor, describes it and releases it: 1; or refuses it, which leaves it the caller's: 0.
int halftone_take(void* managed, const char* type, int rank, int is_versioned, int writes, description* d) {
    return with_type(type, [&]<class T>() { return taken<T>(managed, rank, is_versioned != 0, writes != 0, *d) ? 1 : 0; });
}
const char* halftone_message() { return message.c_str(); }
int halftone_owners() { return owners; }
}
