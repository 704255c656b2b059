"""The constant parts of a standalone program's files."""

from __future__ import annotations

MAIN = """// {name}: one call of a PyTorch module's kernels, without Python; by hipwright, program {key}.
//
// It reads what the call is given from data/, launches kernels.hsaco as the program does, and compares the outputs with
// the reference in float64, computed when this was written. Workload: {workload}.
// Exit 0: all outputs are right. 1: one is not. 2: it could not run; the message says why.
#include <hip/hip_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

static std::string folder;  // where data/ and kernels.hsaco are

static void check(hipError_t status, const char* what) {{
    if (status == hipSuccess) return;
    std::fprintf(stderr, "%s: %s\\n", what, hipGetErrorName(status));
    std::exit(2);
}}

static std::vector<char> read(const std::string& name) {{
    std::ifstream file(folder + name, std::ios::binary);
    if (!file) {{
        std::fprintf(stderr, "%s%s cannot be read; the argument is the folder\\n", folder.c_str(), name.c_str());
        std::exit(2);
    }}
    return std::vector<char>(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}}

// Device memory that the call works on.
struct Buffer {{
    char* address = nullptr;
    size_t size;

    Buffer(size_t bytes, const char* data) : size(bytes) {{
        check(hipMalloc(reinterpret_cast<void**>(&address), bytes ? bytes : 1), "hipMalloc");
        if (!data) return;
        std::vector<char> content = read(data);
        if (content.size() != bytes) {{
            std::fprintf(stderr, "%s: %zu bytes, expected %zu\\n", data, content.size(), bytes);
            std::exit(2);
        }}
        check(hipMemcpy(address, content.data(), bytes, hipMemcpyHostToDevice), "hipMemcpy");
    }}

    void* at(size_t offset) const {{ return address + offset; }}
}};

static hipModule_t code_object;

static void launch(const char* kernel, const unsigned (&grid)[3], const unsigned (&block)[3], unsigned lds,
                   void** arguments) {{
    hipFunction_t function;
    check(hipModuleGetFunction(&function, code_object, kernel), kernel);
    check(hipModuleLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], lds, nullptr,
                                arguments, nullptr), kernel);
}}

static void fill(void* to, const char* element, size_t size, size_t count) {{
    std::vector<char> content;
    for (size_t i = 0; i < count; ++i) content.insert(content.end(), element, element + size);
    check(hipMemcpy(to, content.data(), content.size(), hipMemcpyHostToDevice), "hipMemcpy");
}}

template <typename T>
static T as(const char* bytes) {{
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}}

static double half_value(uint16_t bits) {{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 0    ? std::ldexp(fraction, -24)
                  : exponent == 31 ? (fraction ? NAN : INFINITY)
                                   : std::ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 ? -size : size;
}}

static double value(const std::string& dtype, const char* bytes) {{
    if (dtype == "float64") return as<double>(bytes);
    if (dtype == "float32") return as<float>(bytes);
    if (dtype == "float16") return half_value(as<uint16_t>(bytes));
    if (dtype == "bfloat16") {{
        uint32_t bits = uint32_t(as<uint16_t>(bytes)) << 16;
        return as<float>(reinterpret_cast<const char*>(&bits));
    }}
    if (dtype == "int64") return static_cast<double>(as<int64_t>(bytes));
    if (dtype == "int32") return as<int32_t>(bytes);
    if (dtype == "int16") return as<int16_t>(bytes);
    if (dtype == "int8") return as<int8_t>(bytes);
    return as<uint8_t>(bytes);  // uint8, bool
}}

// One output against the reference; limit: the largest error of an element that is allowed.
static bool right(int number, const Buffer& buffer, size_t offset, const std::string& dtype, size_t width,
                  const std::vector<long long>& shape, const std::vector<long long>& stride, double limit) {{
    std::vector<char> got(buffer.size), wanted = read("data/expected_" + std::to_string(number) + ".bin");
    check(hipMemcpy(got.data(), buffer.address, buffer.size, hipMemcpyDeviceToHost), "hipMemcpy");
    size_t elements = 1, wrong = 0;
    for (long long size : shape) elements *= size;
    double worst = 0;
    for (size_t i = 0; i < elements; ++i) {{
        size_t rest = i, place = 0;
        for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) place += rest % shape[d] * stride[d];
        double is = value(dtype, got.data() + offset + place * width), should = as<double>(wanted.data() + 8 * i);
        double error = is == should || (std::isnan(is) && std::isnan(should)) ? 0 : std::fabs(is - should);
        if (!(error <= limit)) ++wrong;
        if (!(error <= worst)) worst = error;
    }}
    std::printf("output %d: %zu elements of %s, largest error %.3g, allowed %.3g: %s\\n", number, elements,
                dtype.c_str(), worst, limit, wrong ? "WRONG" : "right");
    return wrong == 0;
}}

int main(int count, char** words) {{
    folder = count > 1 ? std::string(words[1]) + "/" : "./";
    std::vector<char> code = read("kernels.hsaco");
    int devices = 0;
    if (hipGetDeviceCount(&devices) != hipSuccess || devices == 0) {{
        std::fprintf(stderr, "no AMD GPU here: HIP sees none\\n");
        return 2;
    }}
    check(hipModuleLoadData(&code_object, code.data()), "kernels.hsaco (built for another GPU? make ARCH=gfx...)");

{buffers}
{steps}    check(hipDeviceSynchronize(), "the kernels");

    bool good = true;
{results}    return good ? 0 : 1;
}}
"""

MAKEFILE = """# make check: builds the kernels for this machine's GPU (or ARCH=gfx942), runs them, compares the outputs.
HIPCC ?= hipcc
ARCH ?= $(shell rocm_agent_enumerator 2>/dev/null | grep -v gfx000 | head -n 1)
ifeq ($(ARCH),)
ARCH := {arch}
endif

all: kernels.hsaco run

kernels.hsaco: kernels.hip
	$(HIPCC) --genco --offload-arch=$(ARCH) -O3 -std=c++17 kernels.hip -o kernels.hsaco

run: main.cpp
	$(HIPCC) -O2 -std=c++17 main.cpp -o run

check: all
	./run

clean:
	rm -f kernels.hsaco run

.PHONY: all check clean
"""

CMAKE = """# cmake -B build -DARCH=gfx942 && cmake --build build && ctest --test-dir build
cmake_minimum_required(VERSION 3.16)
project(standalone NONE)

set(ARCH "{arch}" CACHE STRING "the GPU's architecture")
find_program(HIPCC hipcc HINTS $ENV{{ROCM_PATH}}/bin /opt/rocm/bin REQUIRED)

set(KERNELS ${{CMAKE_CURRENT_BINARY_DIR}}/kernels.hsaco)
set(MAIN ${{CMAKE_CURRENT_BINARY_DIR}}/run)
set(HERE ${{CMAKE_CURRENT_SOURCE_DIR}})
add_custom_command(OUTPUT ${{KERNELS}} DEPENDS ${{HERE}}/kernels.hip
  COMMAND ${{HIPCC}} --genco --offload-arch=${{ARCH}} -O3 -std=c++17 ${{HERE}}/kernels.hip -o ${{KERNELS}})
add_custom_command(OUTPUT ${{MAIN}} DEPENDS ${{HERE}}/main.cpp
  COMMAND ${{HIPCC}} -O2 -std=c++17 ${{HERE}}/main.cpp -o ${{MAIN}})
add_custom_target(program ALL DEPENDS ${{KERNELS}} ${{MAIN}})
add_custom_command(TARGET program POST_BUILD
  COMMAND ${{CMAKE_COMMAND}} -E copy_directory ${{HERE}}/data ${{CMAKE_CURRENT_BINARY_DIR}}/data)

enable_testing()
add_test(NAME outputs COMMAND ${{MAIN}} WORKING_DIRECTORY ${{CMAKE_CURRENT_BINARY_DIR}})
"""

README = """# {name}

One call of a PyTorch module's kernels without Python, written by hipwright (program {key}). It needs ROCm.

    make check                    # or make check ARCH=gfx90a; CMakeLists.txt does the same

- `kernels.hip`: the kernels as verified, knobs included; built to a code object, `kernels.hsaco`.
- `main.cpp`: the launches of one call at the shapes of the workload {workload}, in order, with every argument.
- `data/`: the inputs, parameters and buffers that the call reads, and the reference's outputs in float64.
- `reference.py`: the module that the kernels stand for.

An output is right when each element's error is at most four times the largest error of the reference itself in its own
types, or a floor for its type where that is less.
"""
