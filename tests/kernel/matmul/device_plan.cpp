// SPDX-License-Identifier: MIT
/// \file
/// A GPU's plans of products (kernel/matmul/device/plan.hpp): the choice for shapes, types, layouts and architectures, without a
/// GPU; properties of all plans; and their explanation. That kernels are launched as planned is tested in
/// emulator/kernel/matmul_plan.cpp.
#include <cstdio>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/matmul/device/explain.hpp>

#include "kernel/matmul/device_choices.hpp"
#include "support/random.hpp"

namespace kernel_matmul_device_plan_tests {

namespace ht = halftone;
using namespace ht::kernel::on_device;
using ht::extent;
namespace simt = ht::simt;
using matmul_test::choice_of;

/// The choices at the time when the times of kernel/matmul/device/tiles.hpp were measured, in the letters of device_choices.hpp. Types: mixed is bfloat16
/// times float in bfloat16, and float is bfloat16 into floats. Changing a cost changes lines here: state in that file or in kernel/matmul/device/plan.hpp
/// where it was measured. A change of parts (/3) changes bits.
constexpr const char* choices =
    R"(types layout shape            sm_80       sm_86       sm_89       sm_90       sm_90a      sm_100      sm_120
bf16  nt 256x2304x768    s64.32      s64.32      s64.32      s64.32      w64         s64.32      s64.32
bf16  nn 256x2304x768    s64.32      s64.32      s64.32      s64.32      w64         s64.32      s64.32
bf16  nt 768x768x768     s64.32      s64.32      s64.32      s64.32      w64         s64.32      s64.32
bf16  tn 768x768x768     s64.32      s64.32      s64.32      s64.32      w64         s64.32      s64.32
bf16  nt 8192x2304x768   s128.32     s128.32     s128.32     s128.64     w192        s128.64     s128.32
bf16  tt 8192x2304x768   s128.32     s128.32     s128.32     s128.64     w192        s128.64     s128.32
bf16  nt 8192x768x3072   s128.32     s128.32     s128.32     s128.64     w192        s128.64     s128.32
bf16  nt 3072x768x8192   s128.32/3   s128.32     s128.32     s128.64/3   w192        s128.64/2   s128.32
bf16  nn 3072x768x8192   s128.32/3   s128.32     s128.32     s128.64/3   w192        s128.64/2   s128.32
bf16  nt 8192x50257x768  s128.32     s128.32     s128.32     s128.64     w256e       s128.64     s128.32
bf16  tn 8192x50257x768  cs128.32    cs128.32    cs128.32    cs128.64    cw256i      cs128.64    cs128.32
bf16  nt 1x768x768       s64.32/3    s64.32/3    s64.32/3    s64.32/3    w64         s64.32/3    s64.32/3
bf16  nn 1x768x768       s64.32/3    s64.32/3    s64.32/3    s64.32/3    w64         s64.32/3    s64.32/3
bf16  nt 64x4096x4096    s64.32/3    s64.32/5    s64.32/2    s64.32/4    s64.32/4    s64.32/4    s64.32/4
bf16  tn 64x4096x4096    s64.32/3    s64.32/5    s64.32/2    s64.32/4    s64.32/4    s64.32/4    s64.32/4
bf16  nt 16x1000x4096    s64.32/6    s64.32/5    s64.32/5    s64.32/8    s64.32/8    s64.32/9    s64.32/9
bf16  tt 16x1000x4096    s64.32/6    s64.32/5    s64.32/5    s64.32/8    s64.32/8    s64.32/9    s64.32/9
bf16  nt 2047x2047x2047  cs128.32    cs128.32    cs128.32    cs128.64    cw64e       cs128.64    cs128.32
bf16  nt 4096x4095x4096  s128.32     s128.32     s128.32     s128.64     w256i       s128.64     s128.32
bf16  nn 4096x4095x4096  cs128.32    cs128.32    cs128.32    cs128.64    cw256i      cs128.64    cs128.32
bf16  nt 4096x4096x4095  cs128.32    cs128.32    cs128.32    cs128.64    cw256       cs128.64    cs128.32
bf16  tn 4096x4096x4095  s128.32     s128.32     s128.32     s128.64     w256        s128.64     s128.32
bf16  nt 1024x1024x1024  s128.32     s128.32     s128.32     s64.32      w64         s64.32      s64.32
bf16  nn 1024x1024x1024  s128.32     s128.32     s128.32     s64.32      w64         s64.32      s64.32
bf16  nt 130x129x0       s64.32      s64.32      s64.32      s64.32      s64.32      s64.32      s64.32
bf16  tn 130x129x0       s64.32      s64.32      s64.32      s64.32      s64.32      s64.32      s64.32
bf16  nt 512x50304x64    s128.32     s128.32     s128.32     s128.64     s128.64     s128.64     s128.32
bf16  tt 512x50304x64    s128.32     s128.32     s128.32     s128.64     s128.64     s128.64     s128.32
bf16  nt 520x600x520     s64.32      s64.32      s64.32      s64.32      w64         s64.32      s64.32
bf16  nt 1024x2048x1024  s128.32     s128.32     s128.32     s128.64     w64         s128.64     s128.32
bf16  nn 1024x2048x1024  s128.32     s128.32     s128.32     s128.64     w64         s128.64     s128.32
bf16  nt 2304x768x8192   s128.32/2   s128.32/3   s128.32/3   s128.64/2   w256/2      s128.64/4   s128.32/4
bf16  tn 2304x768x8192   s128.32/2   s128.32/3   s128.32/3   s128.64/2   w256/2      s128.64/4   s128.32/4
bf16  nt 200x1003x2048   s64.32/3    s64.32      s64.32      s64.32/2    w64/3       s64.32/2    s64.32/2
bf16  nn 200x1003x2048   r64.32/3    r64.32      r64.32      r64.32/2    r64.32/2    r64.32/2    r64.32/2
tf32  tn 256x2304x768    s64.16      s64.16      s64.16      s64.16      s64.16      s64.16      s64.16
tf32  tt 768x768x768     s64.16      s64.16      s64.16      s64.16      s64.16      s64.16      s64.16
tf32  nt 8192x2304x768   s128.16     s128.16     s128.16     s128.32     s128.32     s128.32     s128.16
tf32  nn 8192x768x3072   s128.16     s128.16     s128.16     s128.32     s128.32     s128.32     s128.16
tf32  tn 3072x768x8192   s128.16/3   s128.16     s128.16     s128.32/5   s128.32/5   s128.32/2   s128.16/2
tf32  nn 8192x50257x768  cs128.16    cs128.16    cs128.16    cs128.32    cs128.32    cs128.32    cs128.16
tf32  tn 1x768x768       s64.16/3    s64.16/3    s64.16/3    s64.16/3    s64.16/3    s64.16/3    s64.16/3
tf32  tt 64x4096x4096    s64.16/5    s64.16/5    s64.16/5    s64.16/4    s64.16/4    s64.16/4    s64.16/4
tf32  nt 16x1000x4096    s64.16/13   s64.16/10   s64.16/10   s64.16/8    s64.16/8    s64.16/9    s64.16/9
tf32  nn 2047x2047x2047  cs128.16    cs128.16    cs128.16    cs128.32    cs128.32    cs128.32    cs128.16
tf32  tn 4096x4095x4096  cs128.16    cs128.16    cs128.16    cs128.32    cs128.32    cs128.32    cs128.16
tf32  nn 4096x4096x4095  cs128.16    cs128.16    cs128.16    cs128.32    cs128.32    cs128.32    cs128.16
tf32  tn 1024x1024x1024  s128.16     s128.16     s128.16     s64.16      s64.16      s64.16      s64.16
tf32  tt 130x129x0       s64.16      s64.16      s64.16      s64.16      s64.16      s64.16      s64.16
tf32  nt 512x50304x64    s128.16     s128.16     s128.16     s128.32     s128.32     s128.32     s128.16
tf32  nn 520x600x520     s64.16      s64.16      s64.16      s64.16      s64.16      s64.16      s64.16
tf32  tn 1024x2048x1024  s128.16     s128.16     s128.16     s128.32     s128.32     s128.32     s128.16
tf32  nn 2304x768x8192   s128.16/2   s128.16/3   s128.16/3   s128.32/6   s128.32/6   s128.32/4   s128.16/4
tf32  tn 200x1003x2048   r64.16/3    r64.16/5    r64.16/2    r64.16/4    r64.16/4    r64.16/4    r64.16/4
fp32  tt 256x2304x768    f128/3      f128/2      f128/2      f128/3      f128/3      f64/2       f64/2
fp32  nt 768x768x768     f128/3      f128/2      f128/2      f128/3      f128/3      f64/2       f64/2
fp32  nn 8192x2304x768   f128        f128        f128        f128        f128        f128        f128
fp32  tn 8192x768x3072   f128/3      f128/3      f128/3      f128        f128        f128/3      f128/3
fp32  nn 3072x768x8192   f128/3      f128/7      f128/4      f128/11     f128/11     f128/2      f128/2
fp32  tn 8192x50257x768  f128        f128        f128        f128        f128        f128        f128
fp32  tt 1x768x768       f64/3       f64/3       f64/3       f64/3       f64/3       f64/3       f64/3
fp32  nt 64x4096x4096    f64/5       f64/9       f64/5       f64/4       f64/4       f64/9       f64/9
fp32  nn 16x1000x4096    f64/13      f64/10      f64/10      f64/16      f64/16      f64/16      f64/16
fp32  tn 2047x2047x2047  f128/2      f128/4      f128/3      f128        f128        f128        f128
fp32  nn 4096x4095x4096  f128/2      f128/3      f128/2      f128        f128        f128        f128
fp32  tn 4096x4096x4095  f128/2      f128/3      f128/2      f128        f128        f128        f128
fp32  tt 1024x1024x1024  f128/3      f128/2      f128/2      f128/4      f128/4      f128/4      f128/4
fp32  nt 130x129x0       f64         f64         f64         f64         f64         f64         f64
fp32  nn 512x50304x64    f128        f128        f128        f128        f128        f128        f128
fp32  tn 520x600x520     f64/2       f128/2      f128/2      f64/2       f64/2       f64/2       f64/2
fp32  nn 1024x2048x1024  f128/4      f128/3      f128/3      f128/2      f128/2      f128/2      f128/2
fp32  tn 2304x768x8192   f128/2      f128/7      f128/7      f128/6      f128/6      f128/4      f128/4
fp32  tt 200x1003x2048   f128/6      f128/5      f128/5      f128/8      f128/8      f128/8      f128/8
fp8   nt 256x2304x768    r64.32      r64.32      b64.64      r64.32      v64         r64.32      b64.64
fp8   nt 768x768x768     r64.32      r64.32      b64.64      r64.32      v64         r64.32      b64.64
fp8   nn 768x768x768     r64.32      r64.32      b64.64      r64.32      v64         r64.32      b64.64
fp8   nt 8192x2304x768   r64.32      r64.32      b128.64     r64.32      v192        r64.32      b128.64
fp8   tn 8192x2304x768   r64.32      r64.32      b128.64     r64.32      v192        r64.32      b128.64
fp8   nt 8192x768x3072   r64.32      r64.32      b128.64     r64.32      v192        r64.32      b128.64
fp8   nn 8192x768x3072   r64.32      r64.32      b128.64     r64.32      v192        r64.32      b128.64
fp8   nt 3072x768x8192   r64.32      r64.32      b128.64     r64.32      v192        r64.32      b128.64
fp8   tn 3072x768x8192   r64.32      r64.32      b128.64     r64.32      v192        r64.32      b128.64
fp8   nt 8192x50257x768  r64.32      r64.32      b128.64     r64.32      v256e       r64.32      b128.64
fp8   tt 8192x50257x768  r64.32      r64.32      b128.64     r64.32      v256i       r64.32      b128.64
fp8   nt 1x768x768       r64.32/3    r64.32/3    b64.64/3    r64.32/3    v64         r64.32/3    b64.64/3
fp8   nt 64x4096x4096    r64.32/3    r64.32/5    b64.64/2    r64.32/4    r64.32/4    r64.32/4    b64.64/4
fp8   nn 64x4096x4096    r64.32/3    r64.32/5    b64.64/2    r64.32/4    r64.32/4    r64.32/4    b64.64/4
fp8   nt 16x1000x4096    r64.32/6    r64.32/5    b64.64/5    r64.32/8    r64.32/8    r64.32/9    b64.64/8
fp8   tn 16x1000x4096    r64.32/6    r64.32/5    r64.32/5    r64.32/8    r64.32/8    r64.32/9    r64.32/9
fp8   nt 2047x2047x2047  r64.32      r64.32      r64.32      r64.32      v64e        r64.32      r64.32
fp8   nn 2047x2047x2047  r64.32      r64.32      r64.32      r64.32      v256i       r64.32      r64.32
fp8   nt 4096x4095x4096  r64.32      r64.32      b128.64     r64.32      v256i       r64.32      b128.64
fp8   tn 4096x4095x4096  r64.32      r64.32      r64.32      r64.32      v256i       r64.32      r64.32
fp8   nt 4096x4096x4095  r64.32      r64.32      r64.32      r64.32      v256        r64.32      r64.32
fp8   tt 4096x4096x4095  r64.32      r64.32      r64.32      r64.32      v256        r64.32      r64.32
fp8   nt 1024x1024x1024  r64.32      r64.32      b128.64     r64.32      v64         r64.32      b64.64
fp8   nt 130x129x0       r64.32      r64.32      b64.64      r64.32      r64.32      r64.32      b64.64
fp8   nn 130x129x0       r64.32      r64.32      b64.64      r64.32      r64.32      r64.32      b64.64
fp8   nt 512x50304x64    r64.32      r64.32      b128.64     r64.32      r64.32      r64.32      b128.64
fp8   tn 512x50304x64    r64.32      r64.32      b128.64     r64.32      r64.32      r64.32      b128.64
fp8   nt 520x600x520     r64.32      r64.32      r64.32      r64.32      v64         r64.32      r64.32
fp8   nn 520x600x520     r64.32      r64.32      r64.32      r64.32      v64         r64.32      r64.32
fp8   nt 1024x2048x1024  r64.32      r64.32      b128.64     r64.32      v64         r64.32      b128.64
fp8   tn 1024x2048x1024  r64.32      r64.32      b128.64     r64.32      v64         r64.32      b128.64
fp8   nt 2304x768x8192   r64.32      r64.32/2    b128.64/3   r64.32/2    v256/2      r64.32      b128.64/4
fp8   tt 2304x768x8192   r64.32      r64.32/2    b128.64/3   r64.32/2    v256/2      r64.32      b128.64/4
fp8   nt 200x1003x2048   r64.32/3    r64.32      b64.64      r64.32/2    v64/3       r64.32/2    b64.64/2
mixed nn 256x2304x768    r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed tn 768x768x768     r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed nn 8192x2304x768   r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed tn 8192x768x3072   r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed tt 3072x768x8192   r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed nt 8192x50257x768  r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed nn 1x768x768       r64.32/3    r64.32/3    r64.32/3    r64.32/3    r64.32/3    r64.32/3    r64.32/3
mixed tn 64x4096x4096    r64.32/3    r64.32/5    r64.32/2    r64.32/4    r64.32/4    r64.32/4    r64.32/4
mixed nn 16x1000x4096    r64.32/6    r64.32/5    r64.32/5    r64.32/8    r64.32/8    r64.32/9    r64.32/9
mixed tn 2047x2047x2047  r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed tt 4096x4095x4096  r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed nt 4096x4096x4095  r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed nn 1024x1024x1024  r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed tn 130x129x0       r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed nn 512x50304x64    r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed tn 520x600x520     r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed tt 1024x2048x1024  r64.32      r64.32      r64.32      r64.32      r64.32      r64.32      r64.32
mixed nt 2304x768x8192   r64.32      r64.32/2    r64.32      r64.32/2    r64.32/2    r64.32      r64.32
mixed nn 200x1003x2048   r64.32/3    r64.32      r64.32      r64.32/2    r64.32/2    r64.32/2    r64.32/2
float nt 256x2304x768    s64.32      s64.32      s64.32      s64.32      w64         s64.32      s64.32
float tn 256x2304x768    s64.32      s64.32      s64.32      s64.32      w64         s64.32      s64.32
float nt 768x768x768     s64.32      s64.32      s64.32      s64.32      w64         s64.32      s64.32
float nn 768x768x768     s64.32      s64.32      s64.32      s64.32      w64         s64.32      s64.32
float nt 8192x2304x768   s128.32     s128.32     s128.32     s128.64     w192        s128.64     s128.32
float tn 8192x2304x768   s128.32     s128.32     s128.32     s128.64     w192        s128.64     s128.32
float nt 8192x768x3072   s128.32     s128.32     s128.32     s128.64     w192        s128.64     s128.32
float tt 8192x768x3072   s128.32     s128.32     s128.32     s128.64     w192        s128.64     s128.32
float nt 3072x768x8192   s128.32/3   s128.32     s128.32     s128.64/3   w192        s128.64/2   s128.32
float nt 8192x50257x768  s128.32     s128.32     s128.32     s128.64     w256e       s128.64     s128.32
float nn 8192x50257x768  cs128.32    cs128.32    cs128.32    cs128.64    cw256i      cs128.64    cs128.32
float nt 1x768x768       s64.32/3    s64.32/3    s64.32/3    s64.32/3    w64         s64.32/3    s64.32/3
float tn 1x768x768       s64.32/3    s64.32/3    s64.32/3    s64.32/3    w64         s64.32/3    s64.32/3
float nt 64x4096x4096    s64.32/3    s64.32/5    s64.32/2    s64.32/4    s64.32/4    s64.32/4    s64.32/4
float nn 64x4096x4096    s64.32/3    s64.32/5    s64.32/2    s64.32/4    s64.32/4    s64.32/4    s64.32/4
float nt 16x1000x4096    s64.32/6    s64.32/5    s64.32/5    s64.32/8    s64.32/8    s64.32/9    s64.32/9
float tn 16x1000x4096    s64.32/6    s64.32/5    s64.32/5    s64.32/8    s64.32/8    s64.32/9    s64.32/9
float nt 2047x2047x2047  cs128.32    cs128.32    cs128.32    cs128.64    cw64e       cs128.64    cs128.32
float tt 2047x2047x2047  cs128.32    cs128.32    cs128.32    cs128.64    cw256i      cs128.64    cs128.32
float nt 4096x4095x4096  s128.32     s128.32     s128.32     s128.64     w256i       s128.64     s128.32
float nt 4096x4096x4095  cs128.32    cs128.32    cs128.32    cs128.64    cw256       cs128.64    cs128.32
float nn 4096x4096x4095  cs128.32    cs128.32    cs128.32    cs128.64    cw256       cs128.64    cs128.32
float nt 1024x1024x1024  s128.32     s128.32     s128.32     s64.32      w64         s64.32      s64.32
float tn 1024x1024x1024  s128.32     s128.32     s128.32     s64.32      w64         s64.32      s64.32
float nt 130x129x0       s64.32      s64.32      s64.32      s64.32      s64.32      s64.32      s64.32
float nn 130x129x0       s64.32      s64.32      s64.32      s64.32      s64.32      s64.32      s64.32
float nt 512x50304x64    s128.32     s128.32     s128.32     s128.64     s128.64     s128.64     s128.32
float tn 512x50304x64    s128.32     s128.32     s128.32     s128.64     s128.64     s128.64     s128.32
float nt 520x600x520     s64.32      s64.32      s64.32      s64.32      w64         s64.32      s64.32
float tt 520x600x520     s64.32      s64.32      s64.32      s64.32      w64         s64.32      s64.32
float nt 1024x2048x1024  s128.32     s128.32     s128.32     s128.64     w64         s128.64     s128.32
float nt 2304x768x8192   s128.32/2   s128.32/3   s128.32/3   s128.64/2   w256/2      s128.64/4   s128.32/4
float nn 2304x768x8192   s128.32/2   s128.32/3   s128.32/3   s128.64/2   w256/2      s128.64/4   s128.32/4
float nt 200x1003x2048   s64.32/3    s64.32      s64.32      s64.32/2    w64/3       s64.32/2    s64.32/2
float tn 200x1003x2048   r64.32/3    r64.32      r64.32      r64.32/2    r64.32/2    r64.32/2    r64.32/2)";

constexpr matmul_types other_types[] = {
    {"mixed", matmul_arithmetic::sixteen_bits, matmul_elements::others, 2, 2},
    {"float", matmul_arithmetic::sixteen_bits, matmul_elements::as_multiplied, 2, 4}};

const matmul_types& types_of(const std::string& name) {
    for (const matmul_types& t : named_types) {
        if (t.name == name) return t;
    }
    return name == "mixed" ? other_types[0] : other_types[1];
}
matmul_problem problem_of(const std::string& types, const std::string& layout, extent m, extent n, extent k,
                          const std::string& on) {
    return dense_problem(m, n, k, types_of(types), *simt::target_named(on), {layout[0] == 't', layout[1] == 't'});
}

TEST_CASE("a GPU's choice for products: every line of the table") {
    std::istringstream lines(choices);
    std::string types, layout, shape, name;
    std::vector<std::string> devices;
    std::string line;
    std::getline(lines, line);
    std::istringstream head(line);
    head >> types >> layout >> shape;
    while (head >> name) devices.push_back(name);
    REQUIRE(devices.size() == 7);
    int count = 0;
    while (std::getline(lines, line)) {
        std::istringstream row(line);
        long long m = 0, n = 0, k = 0;
        row >> types >> layout >> shape;
        REQUIRE(std::sscanf(shape.c_str(), "%lldx%lldx%lld", &m, &n, &k) == 3);
        for (const std::string& device : devices) {
            std::string expected;
            row >> expected;
            const std::string chosen = choice_of(problem_of(types, layout, m, n, k, device));
            INFO(types, " ", layout, " ", shape, " ", device);
            CHECK(chosen == expected);
            ++count;
        }
    }
    CHECK(count == 7 * 161);
}

// ---- what is no part of the table

constexpr simt::target hopper = *simt::target_named("sm_90a");
constexpr matmul_problem on_hopper(extent m, extent n, extent k) {
    return dense_problem(m, n, k, named_types[0], hopper, {.b_transposed = true});
}
constexpr matmul_family family_of(const matmul_problem& p) { return plan_matmul(p).best().family; }
static_assert(family_of(on_hopper(8192, 2304, 768)) == matmul_family::wgmma);

TEST_CASE("a GPU's choice for products: batches, k = 0 and batch-invariant contexts have no warpgroups") {
    matmul_problem p = on_hopper(8192, 2304, 768);
    p.matrices = 2;
    CHECK(choice_of(p) == "s128.64");
    p = on_hopper(8192, 2304, 768);
    p.gpu.batch_invariant = true;
    CHECK(choice_of(p) == "s128.64");
    p = on_hopper(16, 1000, 4096);
    CHECK(choice_of(p) == "s64.32/8");
    p.gpu.batch_invariant = true;
    CHECK(choice_of(p) == "s64.32");  // k in one part, whatever the number of rows
    CHECK(choice_of(on_hopper(8192, 2304, 0)) == "s64.32");
}

TEST_CASE("a GPU's choice for products: unaligned operands are copied where that pays, and never those of a batch") {
    matmul_problem p = on_hopper(4096, 4096, 4095);
    CHECK(choice_of(p) == "cw256");
    p.matrices = 2;
    CHECK(choice_of(p) == "r64.32");
    CHECK(choice_of(on_hopper(512, 512, 767)) == "r64.32");
    CHECK(choice_of(on_hopper(16, 8192, 8191)) == "r64.32/2");  // a copy of b costs more than the product
}

TEST_CASE("a GPU's choice for products: rows of c in sets, at an offset, or one by one, whichever takes less time") {
    const auto with = [](extent m, extent n, extent k, along of_b, int offset) {
        matmul_problem p = on_hopper(m, n, k);
        p.b.axis = of_b, p.c.offset = offset;
        return choice_of(p);
    };
    CHECK(with(8192, 50304, 768, along::depth, 0) == "w256");
    CHECK(with(8192, 50304, 768, along::depth, 3) == "w256o");
    CHECK(with(8192, 50304, 768, along::outer, 3) == "w256i");
    CHECK(with(8192, 50257, 768, along::depth, 0) == "w256e");
    CHECK(with(8192, 50257, 768, along::outer, 0) == "w256i");
    CHECK(with(130, 50257, 768, along::depth, 0) == "w256i");  // sets would have 8 tiles of rows, not 2
    CHECK(with(7, 50257, 768, along::depth, 0) == "w192i");    // fewer rows than sets
}

TEST_CASE("a GPU's choice for products: what single stores cost decides between mma.sync and warpgroups, too") {
    CHECK(choice_of(on_hopper(313, 2062, 368)) == "w64i");    // 347, as many tiles of mma.sync 322 without their stores
    CHECK(choice_of(on_hopper(3609, 2076, 264)) == "w64e");   // 1,275, mma.sync 1,056 without
    CHECK(choice_of(on_hopper(3085, 1871, 400)) == "w256e");  // 1,462, mma.sync 1,200 without
    // And no more than tiles of mma.sync over the same sets.
    CHECK(choice_of(on_hopper(2250, 1783, 416)) == "s128.64");
    CHECK(choice_of(on_hopper(6551, 3060, 152)) == "s128.64");
}

TEST_CASE("a GPU's choice for products: what the code was compiled for") {
    matmul_problem p = dense_problem(8192, 2304, 768, named_types[0], *simt::target_named("sm_90"));
    CHECK(choice_of(p) == "s128.64");
    p.with.compiled = {true, true};
    CHECK(choice_of(p) == "s128.64");
    p.with.compiled = {false, true};
    CHECK(choice_of(p) == "s128.32");
    p = dense_problem(8192, 2304, 768, named_types[0], *simt::target_named("sm_120"));
    p.with.compiled = {true, true};
    CHECK(choice_of(p) == "s128.32");  // no room for two blocks with deep panels
    p.with.compiled = {true, false};
    CHECK(choice_of(p) == "s128.64");  // the only kernel that there is
    p = dense_problem(8192, 2304, 768, named_types[4], *simt::target_named("sm_89"));
    CHECK(choice_of(p) == "b128.64");
    p.with.has_eight_bit = false;
    CHECK(choice_of(p) == "r64.32");
}

matmul_problem any_problem(support::random& data) {
    const auto one_of = [&data](const auto& all) { return all[data.below(static_cast<int>(std::size(all)))]; };
    const extent sizes[] = {1, 7, 16, 64, 200, 768, 1000, 2047, 4096, 8192, 50257};
    const extent m = one_of(sizes), n = one_of(sizes), k = one_of(sizes);
    matmul_problem p =
        dense_problem(m, n, k, one_of(named_types), one_of(simt::targets), {data.below(2) != 0, data.below(2) != 0});
    p.matrices = data.below(4) == 0 ? 3 : 1;
    p.gpu.batch_invariant = data.below(6) == 0;
    if (data.below(3) == 0) p.gpu.multiprocessors = 1 + data.below(200);
    if (data.below(3) == 0) p.c.offset = 1 + data.below(3);
    return p;
}
TEST_CASE("a GPU's choice for products: some family applies, and none costs less than the chosen one") {
    support::random data{1};
    for (int i = 0; i < 4000; ++i) {
        const matmul_problem p = any_problem(data);
        const matmul_plan plan = plan_matmul(p);
        REQUIRE(plan.chosen >= 0);
        const planned_matmul& best = plan.best();
        REQUIRE(best.why_not == nullptr);
        for (int which = 0; which < matmul_plan::count; ++which) {
            const planned_matmul& f = plan.families[which];
            CHECK(static_cast<int>(f.family) == which);
            if (f.why_not != nullptr) continue;
            CHECK((which < plan.chosen ? f.cost > best.cost : f.cost >= best.cost));
        }
        const bool by_warpgroups = best.family == matmul_family::wgmma || best.family == matmul_family::wgmma_widened;
        CHECK((best.cut.tile > matmul_tile::large) == by_warpgroups);
        CHECK((best.cut.parts == 1 || !p.gpu.batch_invariant));
        CHECK((best.family == matmul_family::fma) == (p.arithmetic == matmul_arithmetic::floats));
        if (best.storing.sets > 1) CHECK((p.m >= most_row_sets && p.c.has_odd_rows && p.b.axis == along::depth));
    }
}

TEST_CASE("a GPU's choice for products, in words") {
    const std::string text = explain_plan(problem_of("bf16", "nt", 256, 2304, 768, "sm_90a"));
    CHECK(text ==
          "  family    wgmma\n"
          "  tiles     128 x 64 of c, 64 of k at a time\n"
          "  k         in one part\n"
          "  copies    nothing\n"
          "  results   by bulk copies\n"
          "  cost      387; 128 x 128 x 1 in 16 bits by mma.sync costs 1\n"
          "  why       not mma_sync_8bit: some operand has more than 8 bits\n"
          "            mma_sync: 672\n"
          "            wgmma: 387, taken\n"
          "            not wgmma_widened: some operand has more than 8 bits\n"
          "            mma_sync_registers: 672\n"
          "            not fma: matrix units multiply this type\n");
    const std::string unaligned = explain_plan(problem_of("tf32", "nn", 16, 1000, 4095, "sm_80"));
    CHECK(unaligned.find("  family    mma_sync_registers\n") == 0);
    CHECK(
        unaligned.find("not mma_sync: some row does not begin at a multiple of 16 bytes, and a copy does not pay\n") !=
        std::string::npos);
    CHECK(unaligned.find("  k         in up to 13 parts, which are added in order\n") != std::string::npos);
    CHECK(explain_plan(problem_of("bf16", "nn", 4096, 4096, 4095, "sm_80"))
              .find("  copies    unaligned operands, to aligned rows\n") != std::string::npos);
}

}  // namespace kernel_matmul_device_plan_tests
