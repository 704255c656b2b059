// A lean stand-in of torch's C++ API for extensions: a tensor is a handle of Python's, its shape and its address; every
// operator is Python's own, reached through a table of functions. Our own code, none of torch's.
// HW_SLIM: a device unit whose needs are known (toolchain/extension/torchlite.py names them); nvcc reads every line three times.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <limits>
#include <vector>
#ifndef HW_SLIM
#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#define HW_OPTIONAL
#define HW_TUPLE
#endif
#if defined(__CUDACC__)
#define HW_BOTH __host__ __device__
#else
#define HW_BOTH
#endif
#define HW_API extern "C" __attribute__((visibility("default")))

// ---------------------------------------------------------------- the C interface (program/modelnew/torchlite_bind.py)
extern "C" {
enum { HW_NONE, HW_INT, HW_DOUBLE, HW_BOOL, HW_TENSOR, HW_INTS, HW_TENSORS, HW_STRING, HW_DTYPE, HW_KEYWORD, HW_DEVICE };
struct HwInfo { int64_t id; void *data; int32_t dtype, device_type, device_index, dims; int64_t numel, offset, sizes[12], strides[12]; };
struct HwValue { int32_t tag, extra; int64_t i; double d; void *p; int64_t n; };
struct HwHost {
    int (*op)(const char *name, const HwValue *args, int count, HwValue *out, HwInfo *infos, int room);
    void (*retain)(int64_t id);
    void (*release)(int64_t id);
    const char *(*error)();
    void *(*stream)(int device);
};
}

namespace c10 {
enum class ScalarType : int8_t { Byte, Char, Short, Int, Long, Half, Float, Double, ComplexHalf, ComplexFloat, ComplexDouble,
                                 Bool, QInt8, QUInt8, QInt32, BFloat16, Undefined,
                                 Float8_e5m2, Float8_e4m3fn, Float8_e5m2fnuz, Float8_e4m3fnuz };
enum class DeviceType : int8_t { CPU, CUDA, HIP = CUDA };
using DeviceIndex = int8_t;
enum class Layout : int8_t { Strided };
enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };
#ifdef HW_OPTIONAL
constexpr std::nullopt_t nullopt = std::nullopt;
template <class T> using optional = std::optional<T>;
#endif

inline const char *toString(ScalarType t) {
    static const char *names[] = {"Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "ComplexHalf",
                                  "ComplexFloat", "ComplexDouble", "Bool", "QInt8", "QUInt8", "QInt32", "BFloat16", "Undefined",
                                  "Float8_e5m2", "Float8_e4m3fn", "Float8_e5m2fnuz", "Float8_e4m3fnuz"};
    return names[(int)t];
}
inline size_t elementSize(ScalarType t) {
    static const int sizes[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4, 2, 0, 1, 1, 1, 1};
    return sizes[(int)t];
}
inline bool isFloatingType(ScalarType t) {
    return t == ScalarType::Half || t == ScalarType::Float || t == ScalarType::Double ||
           t == ScalarType::BFloat16 || t > ScalarType::Undefined;
}
inline bool isIntegralType(ScalarType t, bool with_bool = false) {
    return (int)t <= (int)ScalarType::Long || (with_bool && t == ScalarType::Bool);
}

class Error : public std::exception {
    char text_[1024];

public:
    explicit Error(const char *text) { snprintf(text_, sizeof text_, "%s", text); }
    const char *what() const noexcept override { return text_; }
};

template <class T> class ArrayRef {
    const T *data_;
    size_t size_;

public:
    using value_type = T;
    ArrayRef() : data_(nullptr), size_(0) {}
    ArrayRef(const T *data, size_t size) : data_(data), size_(size) {}
    ArrayRef(const T &one) : data_(&one), size_(1) {}
    ArrayRef(const std::vector<T> &v) : data_(v.data()), size_(v.size()) {}
    ArrayRef(const std::initializer_list<T> &v) : data_(v.begin()), size_(v.size()) {}
    template <size_t N> ArrayRef(const T (&v)[N]) : data_(v), size_(N) {}
    const T *begin() const { return data_; }
    const T *end() const { return data_ + size_; }
    const T *data() const { return data_; }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    const T &operator[](size_t i) const { return data_[i]; }
    const T &at(size_t i) const { return data_[i]; }
    const T &front() const { return data_[0]; }
    const T &back() const { return data_[size_ - 1]; }
    std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
    ArrayRef slice(size_t from, size_t n) const { return ArrayRef(data_ + from, n); }
    ArrayRef slice(size_t from) const { return ArrayRef(data_ + from, size_ - from); }
    bool equals(ArrayRef o) const {
        if (size_ != o.size_) return false;
        for (size_t i = 0; i < size_; ++i)
            if (!(data_[i] == o.data_[i])) return false;
        return true;
    }
    friend bool operator==(ArrayRef a, ArrayRef b) { return a.equals(b); }
    friend bool operator!=(ArrayRef a, ArrayRef b) { return !a.equals(b); }
};
using IntArrayRef = ArrayRef<int64_t>;

struct Device {
    DeviceType type_ = DeviceType::CPU;
    int index_ = -1;
    Device(DeviceType type, int index = -1) : type_(type), index_(index) {}
    Device(const char *text) : type_(std::strncmp(text, "cpu", 3) ? DeviceType::CUDA : DeviceType::CPU) {}
    DeviceType type() const { return type_; }
    DeviceIndex index() const { return (DeviceIndex)index_; }
    bool is_cuda() const { return type_ == DeviceType::CUDA; }
    bool is_cpu() const { return type_ == DeviceType::CPU; }
    bool has_index() const { return index_ >= 0; }
    bool operator==(const Device &o) const { return type_ == o.type_ && (index_ == o.index_ || index_ < 0 || o.index_ < 0); }
    bool operator!=(const Device &o) const { return !(*this == o); }
};
} // namespace c10

#include "hw_half.h"
#include "hw_names.h"

namespace hw {
inline const HwHost *&host() {
    static const HwHost *table = nullptr;
    return table;
}

// The text of an error: what <string> would cost three passes of nvcc to read.
struct Text {
    char data[1024];
    size_t size = 0;
    Text() { data[0] = 0; }
    void put(const char *v) {
        for (v = v ? v : ""; *v && size + 1 < sizeof data; ++v) data[size++] = *v;
        data[size] = 0;
    }
    void put(char v) { const char one[] = {v, 0}; put(one); }
    void put(bool v) { put(v ? "1" : "0"); }
    void put(c10::ScalarType v) { put(c10::toString(v)); }
    void put(const c10::Device &v) { put(v.is_cuda() ? "cuda" : "cpu"); if (v.index_ >= 0) put(":"), put(v.index_); }
    template <class T, std::enable_if_t<std::is_integral<T>::value, int> = 0> void put(T v) { number("%lld", (long long)v); }
    template <class T, std::enable_if_t<std::is_floating_point<T>::value, int> = 0> void put(T v) { number("%g", (double)v); }
    template <class T> auto put(const T &v) -> decltype(v.c_str(), void()) { put(v.c_str()); }
    template <class T> void put(const c10::ArrayRef<T> &v) {
        put("[");
        for (size_t i = 0; i < v.size(); ++i) put(i ? ", " : ""), put(v[i]);
        put("]");
    }
    template <class T> void put(const std::vector<T> &v) { put(c10::ArrayRef<T>(v)); }
    template <class T> void number(const char *form, T v) {
        char digits[40];
        snprintf(digits, sizeof digits, form, v);
        put(digits);
    }
};
template <class... A> Text words(const A &...a) {
    Text text;
    (text.put(a), ...);
    return text;
}

[[noreturn]] inline void fail(const char *message) { throw c10::Error(message); }
[[noreturn]] inline void fail(const Text &message) { throw c10::Error(message.data); }

struct Impl {
    HwInfo info;
    int64_t count = 0;
};
} // namespace hw

namespace at {
using namespace c10;
class Tensor;
struct TensorOptions;
} // namespace at

namespace c10 {
struct Scalar {
    bool floating = false;
    double d = 0;
    int64_t i = 0;
    Scalar() = default;
    template <class T, std::enable_if_t<std::is_arithmetic<T>::value, int> = 0> Scalar(T v) : floating(std::is_floating_point<T>::value), d((double)v), i((int64_t)v) {}
    double toDouble() const { return d; }
    float toFloat() const { return (float)d; }
    int64_t toLong() const { return i; }
    int toInt() const { return (int)i; }
    bool toBool() const { return i != 0; }
    template <class T> T to() const { return floating ? (T)d : (T)i; }
};
} // namespace c10

namespace at {
struct TensorOptions {
    ScalarType dtype_ = ScalarType::Undefined;
    Device device_{DeviceType::CPU};
    bool has_device_ = false;
    TensorOptions() = default;
    TensorOptions(ScalarType t) : dtype_(t) {}
    TensorOptions(Device d) : device_(d), has_device_(true) {}
    TensorOptions(DeviceType d) : device_(d), has_device_(true) {}
    TensorOptions dtype(ScalarType t) const { auto o = *this; o.dtype_ = t; return o; }
    TensorOptions device(Device d) const { auto o = *this; o.device_ = d; o.has_device_ = true; return o; }
    TensorOptions device(DeviceType d, int index = -1) const { return device(Device(d, index)); }
    TensorOptions layout(Layout) const { return *this; }
    TensorOptions requires_grad(bool = true) const { return *this; }
    TensorOptions memory_format(MemoryFormat) const { return *this; }
    TensorOptions pinned_memory(bool) const { return *this; }
    ScalarType dtype() const { return dtype_; }
    Device device() const { return device_; }
};
using IntList = IntArrayRef;

class Tensor {
    hw::Impl *impl_ = nullptr;
    void drop() {
        if (impl_ && --impl_->count == 0) {
            if (hw::host()) hw::host()->release(impl_->info.id);
            delete impl_;
        }
    }

public:
    Tensor() = default;
    explicit Tensor(const HwInfo &info) : impl_(new hw::Impl{info, 1}) {}
    Tensor(const Tensor &o) : impl_(o.impl_) { if (impl_) ++impl_->count; }
    Tensor(Tensor &&o) noexcept : impl_(o.impl_) { o.impl_ = nullptr; }
    Tensor &operator=(Tensor o) noexcept { std::swap(impl_, o.impl_); return *this; }
    ~Tensor() { drop(); }

    const HwInfo &info() const { if (!impl_) hw::fail("an undefined tensor is used"); return impl_->info; }
    bool defined() const { return impl_ != nullptr; }
    bool has_value() const { return defined(); }
    void reset() { *this = Tensor(); }
    int64_t dim() const { return info().dims; }
    int64_t ndimension() const { return dim(); }
    int64_t numel() const { return info().numel; }
    IntArrayRef sizes() const { return IntArrayRef(info().sizes, info().dims); }
    IntArrayRef strides() const { return IntArrayRef(info().strides, info().dims); }
    int64_t size(int64_t i) const { return info().sizes[place(i)]; }
    int64_t stride(int64_t i) const { return info().strides[place(i)]; }
    int64_t place(int64_t i) const {
        if (i < -dim() || i >= dim()) hw::fail(hw::words("Dimension out of range: ", i));
        return i < 0 ? i + dim() : i;
    }
    int64_t storage_offset() const { return info().offset; }
    ScalarType scalar_type() const { return (ScalarType)info().dtype; }
    ScalarType dtype() const { return scalar_type(); }
    Device device() const { return Device((DeviceType)info().device_type, info().device_index); }
    int64_t get_device() const { return info().device_index; }
    bool is_cuda() const { return info().device_type != 0; }
    bool is_hip() const { return is_cuda(); }
    bool is_cpu() const { return info().device_type == 0; }
    bool is_floating_point() const { return isFloatingType(scalar_type()); }
    bool requires_grad() const { return false; }
    size_t element_size() const { return elementSize(scalar_type()); }
    size_t itemsize() const { return element_size(); }
    size_t nbytes() const { return element_size() * numel(); }
    TensorOptions options() const { return TensorOptions().dtype(scalar_type()).device(device()); }
    Layout layout() const { return Layout::Strided; }
    bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const {
        if (format == MemoryFormat::ChannelsLast) return channels_last();
        int64_t expected = 1;
        for (int i = (int)dim() - 1; i >= 0; --i) {
            if (info().sizes[i] != 1 && info().strides[i] != expected) return numel() == 0;
            expected *= info().sizes[i];
        }
        return true;
    }
    bool channels_last() const {
        if (dim() != 4) return false;
        int64_t expected = 1;
        for (int i : {1, 3, 2, 0}) {
            if (size(i) != 1 && stride(i) != expected) return false;
            expected *= size(i);
        }
        return true;
    }
    bool is_non_overlapping_and_dense() const { return is_contiguous() || channels_last(); }
    bool is_same(const Tensor &o) const { return impl_ == o.impl_; }

    void *data_ptr() const { return info().data; }
    const void *const_data_ptr() const { return info().data; }
    void *mutable_data_ptr() const { return info().data; }
    template <class T> T *data_ptr() const {
        using Bare = std::remove_const_t<T>;
        if (scalar_type() != hw::scalar_of<Bare>())
            hw::fail(hw::words("expected scalar type ", hw::scalar_of<Bare>(), " but found ", scalar_type()));
        return (T *)info().data;
    }
    template <class T> T *data() const { return data_ptr<T>(); }
    template <class T> const T *const_data_ptr() const { return data_ptr<T>(); }
    template <class T> T *mutable_data_ptr() const { return data_ptr<T>(); }
    template <class T> T item() const;
    Scalar item() const;

    inline std::vector<Tensor> chunk(int64_t n, int64_t dim = 0) const;
    inline std::vector<Tensor> split(int64_t n, int64_t dim = 0) const;
    inline std::vector<Tensor> unbind(int64_t dim = 0) const;
    inline Tensor operator[](int64_t i) const;
    inline Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
    inline Tensor toType(ScalarType t) const;
    inline Tensor detach() const { return *this; }
    inline Tensor data() const { return *this; }
    inline Tensor to(ScalarType t) const;
    inline Tensor to(const TensorOptions &o) const;
    inline Tensor to(Device d) const;
    inline Tensor operator-() const;
#define HW_METHOD(name)                                                                                                \
    template <class... A> Tensor name(A &&...a) const;                                                                 \
    Tensor name(IntArrayRef a) const;
    HW_METHODS
#undef HW_METHOD
};
using TensorList = ArrayRef<Tensor>;
} // namespace at

namespace hw {
// ---------------------------------------------------------------- calls into Python
struct Args {
    std::vector<HwValue> values;
    std::vector<std::vector<int64_t>> ids;
    static HwValue blank(int tag) { return HwValue{tag, 0, 0, 0, nullptr, 0}; }
    void add(const at::Tensor &t) {
        auto v = blank(t.defined() ? HW_TENSOR : HW_NONE);
        if (t.defined()) v.i = t.info().id;
        values.push_back(v);
    }
    void add(bool b) { auto v = blank(HW_BOOL); v.i = b; values.push_back(v); }
    template <class T> std::enable_if_t<std::is_integral<T>::value && !std::is_same<T, bool>::value> add(T i) { auto v = blank(HW_INT); v.i = (int64_t)i; values.push_back(v); }
    template <class T> std::enable_if_t<std::is_floating_point<T>::value> add(T d) { auto v = blank(HW_DOUBLE); v.d = d; values.push_back(v); }
    void add(const c10::Scalar &s) { s.floating ? add(s.d) : add(s.i); }
    void add(c10::ScalarType t) { auto v = blank(HW_DTYPE); v.i = (int64_t)t; values.push_back(v); }
#ifdef HW_OPTIONAL
    void add(std::nullopt_t) { values.push_back(blank(HW_NONE)); }
    template <class T> void add(const std::optional<T> &o) { if (o) add(*o); else values.push_back(blank(HW_NONE)); }
#endif
    void add(const char *s) { auto v = blank(HW_STRING); v.p = (void *)s; v.n = (int64_t)std::strlen(s); values.push_back(v); }
    template <class T> auto add(const T &s) -> decltype(s.c_str(), void()) { add(s.c_str()); }
    void add(c10::IntArrayRef a) { auto v = blank(HW_INTS); v.p = (void *)a.data(); v.n = (int64_t)a.size(); values.push_back(v); }
    void add(const std::vector<int64_t> &a) { add(c10::IntArrayRef(a)); }
    void add(at::TensorList a) {
        std::vector<int64_t> list;
        for (auto &t : a) list.push_back(t.info().id);
        ids.push_back(std::move(list));
        auto v = blank(HW_TENSORS);
        v.p = (void *)ids.back().data();
        v.n = (int64_t)ids.back().size();
        values.push_back(v);
    }
    void add(const std::vector<at::Tensor> &a) { add(at::TensorList(a)); }
    void keyword(const char *name) { auto v = blank(HW_KEYWORD); v.p = (void *)name; v.n = (int64_t)std::strlen(name); values.push_back(v); }
    void add(c10::MemoryFormat) {}
    void add(const c10::Device &d) {
        auto v = blank(HW_DEVICE);
        v.i = (int64_t)d.type();
        v.n = d.index();
        values.push_back(v);
    }
    void add(c10::DeviceType d) { add(c10::Device(d)); }
    void add(const at::TensorOptions &o) {
        if (o.dtype_ != c10::ScalarType::Undefined) { keyword("dtype"); add(o.dtype_); }
        if (o.has_device_) { keyword("device"); add(o.device_); }
    }
};
inline std::vector<at::Tensor> run(const char *name, const Args &args, HwValue *scalar = nullptr) {
    if (!host()) fail("the extension was not opened");
    HwValue out[32];
    HwInfo infos[32];
    int n = host()->op(name, args.values.data(), (int)args.values.size(), out, infos, 32);
    if (n < 0) fail(host()->error());
    std::vector<at::Tensor> found;
    for (int i = 0; i < n; ++i) {
        if (out[i].tag == HW_TENSOR) found.emplace_back(infos[i]);
        else if (scalar) *scalar = out[i];
    }
    return found;
}
template <class... A> std::vector<at::Tensor> call(const char *name, const A &...a) {
    Args args;
    (args.add(a), ...);
    return run(name, args);
}
template <class... A> at::Tensor call1(const char *name, const A &...a) {
    auto found = call(name, a...);
    return found.empty() ? at::Tensor() : found[0];
}
} // namespace hw

namespace at {
#define HW_METHOD(name)                                                                                                \
    template <class... A> Tensor Tensor::name(A &&...a) const { return hw::call1("." #name, *this, a...); }            \
    inline Tensor Tensor::name(IntArrayRef a) const { return hw::call1("." #name, *this, a); }
HW_METHODS
#undef HW_METHOD
inline Tensor Tensor::operator[](int64_t i) const { return hw::call1(".select", *this, (int64_t)0, i); }
inline Tensor Tensor::contiguous(MemoryFormat format) const {
    if (is_contiguous(format)) return *this;
    if (format == MemoryFormat::ChannelsLast) return hw::call1("channels_last", *this);
    return hw::call1(".contiguous", *this);
}
inline Tensor Tensor::toType(ScalarType t) const { return to(t); }
inline Tensor Tensor::to(ScalarType t) const { return t == scalar_type() ? *this : hw::call1(".to", *this, t); }
inline Tensor Tensor::to(const TensorOptions &o) const { return hw::call1(".to", *this, o); }
inline Tensor Tensor::to(Device d) const { return d == device() ? *this : hw::call1(".to", *this, d); }
inline Tensor Tensor::operator-() const { return hw::call1("neg", *this); }
inline std::vector<Tensor> Tensor::chunk(int64_t n, int64_t dim) const { return hw::call(".chunk", *this, n, dim); }
inline std::vector<Tensor> Tensor::split(int64_t n, int64_t dim) const { return hw::call(".split", *this, n, dim); }
inline std::vector<Tensor> Tensor::unbind(int64_t dim) const { return hw::call(".unbind", *this, dim); }
inline Scalar Tensor::item() const {
    hw::Args args;
    args.add(*this);
    HwValue v{};
    hw::run(".item", args, &v);
    return v.tag == HW_DOUBLE ? Scalar(v.d) : Scalar(v.i);
}
template <class T> T Tensor::item() const { return item().to<T>(); }

#define HW_OPERATOR(op, name)                                                                                          \
    inline Tensor operator op(const Tensor &a, const Tensor &b) { return hw::call1(name, a, b); }                      \
    inline Tensor operator op(const Tensor &a, Scalar b) { return hw::call1(name, a, b); }                             \
    inline Tensor operator op(Scalar a, const Tensor &b) { return hw::call1("r" name, b, a); }
HW_OPERATOR(+, "add") HW_OPERATOR(-, "sub") HW_OPERATOR(*, "mul") HW_OPERATOR(/, "div")
#undef HW_OPERATOR

// factories
#define HW_FACTORY(name)                                                                                               \
    inline Tensor name(IntArrayRef sizes, const TensorOptions &o = {}, MemoryFormat = MemoryFormat::Contiguous) { return hw::call1(#name, sizes, o); }
HW_FACTORY(empty) HW_FACTORY(zeros) HW_FACTORY(ones) HW_FACTORY(rand) HW_FACTORY(randn)
#undef HW_FACTORY
inline Tensor full(IntArrayRef sizes, Scalar value, const TensorOptions &o = {}) { return hw::call1("full", sizes, value, o); }
inline Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, const TensorOptions &o = {}) { return hw::call1("empty_strided", sizes, strides, o); }
inline Tensor arange(Scalar end, const TensorOptions &o = {}) { return hw::call1("arange", end, o); }
inline Tensor arange(Scalar from, Scalar end, const TensorOptions &o = {}) { return hw::call1("arange", from, end, o); }
inline Tensor eye(int64_t n, const TensorOptions &o = {}) { return hw::call1("eye", n, o); }
inline Tensor tensor(std::initializer_list<int64_t> v, const TensorOptions &o = {}) { return hw::call1("tensor", IntArrayRef(v), o); }
#define HW_LIKE(name)                                                                                                  \
    inline Tensor name(const Tensor &x, const TensorOptions &o = {}, MemoryFormat = MemoryFormat::Contiguous) { return hw::call1(#name, x, o); }
HW_LIKE(empty_like) HW_LIKE(zeros_like) HW_LIKE(ones_like) HW_LIKE(rand_like) HW_LIKE(randn_like)
#undef HW_LIKE
inline Tensor full_like(const Tensor &x, Scalar v, const TensorOptions &o = {}) { return hw::call1("full_like", x, v, o); }
inline Tensor cat(TensorList a, int64_t dim = 0) { return hw::call1("cat", a, dim); }
inline Tensor stack(TensorList a, int64_t dim = 0) { return hw::call1("stack", a, dim); }
inline Tensor permute(const Tensor &x, IntArrayRef dims) { return hw::call1("permute", x, dims); }
inline Tensor reshape(const Tensor &x, IntArrayRef sizes) { return hw::call1("reshape", x, sizes); }
#ifdef HW_TUPLE
#define HW_PAIR(name)                                                                                                  \
    inline std::tuple<Tensor, Tensor> name(const Tensor &x, int64_t dim, bool keep = false) {                          \
        auto r = hw::call(#name, x, dim, keep);                                                                        \
        return {r[0], r[1]};                                                                                           \
    }                                                                                                                  \
    inline Tensor name(const Tensor &x) { return hw::call1(#name, x); }                                                \
    inline Tensor name(const Tensor &x, const Tensor &y) { return hw::call1(#name, x, y); }
HW_PAIR(max) HW_PAIR(min) HW_PAIR(median)
#undef HW_PAIR
#endif
#define HW_FUNCTION(name) template <class... A> Tensor name(const Tensor &x, const A &...a) { return hw::call1(#name, x, a...); }
HW_FUNCTIONS
#undef HW_FUNCTION
inline bool allclose(const Tensor &a, const Tensor &b) { return hw::call1("allclose", a, b).item<bool>(); }
inline TensorOptions dtype(ScalarType t) { return TensorOptions(t); }
inline TensorOptions device(Device d) { return TensorOptions(d); }
struct MaybeDevice {
    bool known = false;
    Device device{DeviceType::CPU};
};
inline MaybeDevice device_of(const Tensor &t) { return t.defined() ? MaybeDevice{true, t.device()} : MaybeDevice{}; }
constexpr auto kByte = ScalarType::Byte, kChar = ScalarType::Char, kShort = ScalarType::Short, kInt = ScalarType::Int, kLong = ScalarType::Long,
    kHalf = ScalarType::Half, kFloat = ScalarType::Float, kDouble = ScalarType::Double, kBool = ScalarType::Bool, kBFloat16 = ScalarType::BFloat16,
    kUInt8 = kByte, kInt8 = kChar, kInt16 = kShort, kInt32 = kInt, kInt64 = kLong, kFloat16 = kHalf, kFloat32 = kFloat, kFloat64 = kDouble,
    kFloat8_e5m2 = ScalarType::Float8_e5m2, kFloat8_e4m3fn = ScalarType::Float8_e4m3fn,
    kFloat8_e5m2fnuz = ScalarType::Float8_e5m2fnuz, kFloat8_e4m3fnuz = ScalarType::Float8_e4m3fnuz;
constexpr auto kCPU = DeviceType::CPU;
constexpr auto kCUDA = DeviceType::CUDA;
constexpr auto kHIP = DeviceType::CUDA;
constexpr auto kStrided = Layout::Strided;
template <class T, bool> struct AccumulateType { using type = T; };
template <> struct AccumulateType<Half, true> { using type = float; };
template <> struct AccumulateType<BFloat16, true> { using type = float; };
template <class T, bool cuda> using acc_type = typename AccumulateType<T, cuda>::type;
template <class T> struct OpMathType { using type = typename AccumulateType<T, true>::type; };
template <class T> using opmath_type = typename OpMathType<T>::type;
struct Generator {};
struct NoGradGuard { NoGradGuard() {} };
struct AutoDispatchBelowADInplaceOrView { AutoDispatchBelowADInplaceOrView() {} };
} // namespace at

namespace torch {
using namespace at;
#ifdef HW_OPTIONAL
using c10::optional;
#endif
template <class F> F *wrap_pybind_function(F *f) { return f; }
namespace nn { namespace functional {} }
namespace cuda {
inline bool is_available() { return true; }
inline void synchronize(int = -1) { hw::call1("synchronize"); }
}
} // namespace torch
namespace c10 { using at::Tensor; using at::TensorOptions; }

#define TORCH_CHECK(condition, ...)                                                                                    \
    do {                                                                                                               \
        if (!(condition)) hw::fail(hw::message("Expected " #condition " to be true", ##__VA_ARGS__));                  \
    } while (0)
namespace hw {
inline Text message(const char *plain) { return words(plain); }
template <class... A> Text message(const char *, const A &...a) { return words(a...); }
} // namespace hw
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
#define TORCH_CHECK_EQ(a, b) TORCH_CHECK((a) == (b), #a " == " #b)
#define TORCH_CHECK_VALUE TORCH_CHECK
#define TORCH_CHECK_TYPE TORCH_CHECK
#define TORCH_CHECK_NOT_IMPLEMENTED TORCH_CHECK
#define AT_ASSERT TORCH_CHECK
#define AT_ASSERTM TORCH_CHECK
#define AT_CHECK TORCH_CHECK
#define AT_ERROR(...) hw::fail(hw::words(__VA_ARGS__))
#define TORCH_WARN(...) ((void)0)
#define TORCH_WARN_ONCE(...) ((void)0)
#define C10_RESTRICT __restrict__
#define C10_LAUNCH_BOUNDS_1(a) __launch_bounds__(a)
#define C10_LAUNCH_BOUNDS_2(a, b) __launch_bounds__(a, b)
#define C10_HOST_DEVICE HW_BOTH
#define C10_DEVICE __device__
#define C10_ALWAYS_INLINE inline __attribute__((always_inline))
#define C10_LIKELY(x) (x)
#define C10_UNLIKELY(x) (x)
#define C10_EXPORT __attribute__((visibility("default")))
#define TORCH_API

#include "hw_dispatch.h"
#ifndef HW_SLIM
#include "hw_module.h"
#endif
