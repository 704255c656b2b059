// pybind11's words for a module of functions, and the entries that Python calls.
#pragma once

namespace hw {
template <class T> using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

// ---------------------------------------------------------------- arguments from Python
template <class T, class = void> struct From;
template <> struct From<at::Tensor> { static at::Tensor get(const HwValue &v) { return v.tag == HW_TENSOR ? at::Tensor(*(const HwInfo *)v.p) : at::Tensor(); } };
template <> struct From<bool> { static bool get(const HwValue &v) { return v.i != 0; } };
template <class T> struct From<T, std::enable_if_t<std::is_integral<T>::value && !std::is_same<T, bool>::value>> {
    static T get(const HwValue &v) {
        if (v.tag != HW_INT && v.tag != HW_BOOL) fail("an integer is expected");
        return (T)v.i;
    }
};
template <class T> struct From<T, std::enable_if_t<std::is_floating_point<T>::value>> {
    static T get(const HwValue &v) {
        if (v.tag != HW_DOUBLE && v.tag != HW_INT && v.tag != HW_BOOL) fail("a number is expected");
        return v.tag == HW_DOUBLE ? (T)v.d : (T)v.i;
    }
};
template <> struct From<std::string> { static std::string get(const HwValue &v) { return std::string((const char *)v.p, (size_t)v.n); } };
template <> struct From<c10::Scalar> { static c10::Scalar get(const HwValue &v) { return v.tag == HW_DOUBLE ? c10::Scalar(v.d) : c10::Scalar(v.i); } };
template <> struct From<c10::ScalarType> { static c10::ScalarType get(const HwValue &v) { return (c10::ScalarType)v.i; } };
template <class T> struct From<std::vector<T>, std::enable_if_t<std::is_integral<T>::value>> {
    static std::vector<T> get(const HwValue &v) {
        auto *p = (const int64_t *)v.p;
        return std::vector<T>(p, p + v.n);
    }
};
template <> struct From<c10::IntArrayRef> { static c10::IntArrayRef get(const HwValue &v) { return c10::IntArrayRef((const int64_t *)v.p, (size_t)v.n); } };
template <> struct From<std::vector<at::Tensor>> {
    static std::vector<at::Tensor> get(const HwValue &v) {
        std::vector<at::Tensor> out;
        for (int64_t i = 0; i < v.n; ++i) out.emplace_back(((const HwInfo *)v.p)[i]);
        return out;
    }
};
template <class T> struct From<std::optional<T>> { static std::optional<T> get(const HwValue &v) { return v.tag == HW_NONE ? std::nullopt : std::optional<T>(From<T>::get(v)); } };

// ---------------------------------------------------------------- results for Python
struct Result {
    HwValue *out;
    int room, count = 0, shape = 0; // shape: 0 none, 1 one value, 2 a list, 3 a tuple
    HwValue &next(int tag) {
        if (count >= room) fail("too many results");
        out[count] = HwValue{tag, 0, 0, 0, nullptr, 0};
        return out[count++];
    }
    void put(const at::Tensor &t) {
        auto &v = next(t.defined() ? HW_TENSOR : HW_NONE);
        if (t.defined()) host()->retain(v.i = t.info().id);
    }
    void put(bool b) { next(HW_BOOL).i = b; }
    template <class T> std::enable_if_t<std::is_integral<T>::value && !std::is_same<T, bool>::value> put(T i) { next(HW_INT).i = (int64_t)i; }
    template <class T> std::enable_if_t<std::is_floating_point<T>::value> put(T d) { next(HW_DOUBLE).d = d; }
    template <class T> void whole(const T &v) { shape = 1; put(v); }
    template <class T> void whole(const std::vector<T> &v) { shape = 2; for (const auto &item : v) put(item); }
    template <class... T> void whole(const std::tuple<T...> &v) { shape = 3; std::apply([&](const auto &...item) { (put(item), ...); }, v); }
    template <class A, class B> void whole(const std::pair<A, B> &v) { shape = 3; put(v.first); put(v.second); }
};

struct Entry {
    std::string name;
    int arity = 0;
    std::vector<std::string> names, defaults; // defaults: JSON, "" for none
    virtual void call(const HwValue *args, Result &result) = 0;
    virtual ~Entry() = default;
};
inline std::vector<Entry *> &entries() {
    static std::vector<Entry *> list;
    return list;
}

template <class F, class R, class... A> struct Typed : Entry {
    F function;
    explicit Typed(F f) : function(std::move(f)) { arity = (int)sizeof...(A); }
    template <size_t... I> void run(const HwValue *args, Result &result, std::index_sequence<I...>) {
        std::tuple<Plain<A>...> given{From<Plain<A>>::get(args[I])...};
        (void)args;
        if constexpr (std::is_void<R>::value) function(static_cast<A>(std::get<I>(given))...);
        else result.whole(function(static_cast<A>(std::get<I>(given))...));
    }
    void call(const HwValue *args, Result &result) override { run(args, result, std::index_sequence_for<A...>()); }
};
template <class R, class... A> Entry *entry(R (*f)(A...)) { return new Typed<R (*)(A...), R, A...>(f); }
template <class F, class R, class... A> Entry *entry_of(F f, R (F::*)(A...) const) { return new Typed<F, R, A...>(std::move(f)); }
template <class F> auto entry(F f) -> decltype(&F::operator(), (Entry *)nullptr) { return entry_of(std::move(f), &F::operator()); }

inline std::string json(const std::string &s) {
    std::string out = "\"";
    for (char c : s) {
        if (c == '"' || c == '\\') out += '\\';
        out += (unsigned char)c < 32 ? ' ' : c;
    }
    return out + "\"";
}
inline std::string json(const char *s) { return json(std::string(s)); }
inline std::string json(bool b) { return b ? "true" : "false"; }
inline std::string json(std::nullopt_t) { return "null"; }
inline std::string json(double d) { char text[40]; snprintf(text, sizeof text, "%.17g", d); return text; }
inline std::string json(float d) { return json((double)d); }
template <class T> std::enable_if_t<std::is_integral<T>::value, std::string> json(T i) { return std::to_string(i); }
template <class T> std::string json(const std::optional<T> &o) { return o ? json(*o) : "null"; }
inline std::string json(const at::Tensor &) { return "null"; }
} // namespace hw

namespace pybind11 {
struct none {};
struct arg_v { std::string name, json; };
struct arg {
    std::string name;
    explicit arg(const char *n) : name(n) {}
    arg &noconvert() { return *this; }
    arg &none(bool = true) { return *this; }
    template <class T> arg_v operator=(const T &v) const { return {name, hw::json(v)}; }
    arg_v operator=(pybind11::none) const { return {name, "null"}; }
};
struct gil_scoped_release { gil_scoped_release() {} };
struct gil_scoped_acquire { gil_scoped_acquire() {} };
template <class... T> struct call_guard {};
enum class return_value_policy { automatic, reference, copy, move, take_ownership };
inline namespace literals { inline arg operator""_a(const char *n, size_t) { return arg(n); } }
struct module_ {
    struct Attribute { template <class T> Attribute &operator=(const T &) { return *this; } };
    Attribute nothing;
    Attribute &attr(const char *) { return nothing; }
    Attribute &doc() { return nothing; }
    static void note(hw::Entry &e, const arg &a) { e.names.push_back(a.name); e.defaults.push_back(""); }
    static void note(hw::Entry &e, const arg_v &a) { e.names.push_back(a.name); e.defaults.push_back(a.json); }
    template <class T> static void note(hw::Entry &, const T &) {}
    template <class F, class... X> module_ &def(const char *name, F f, const X &...extra) {
        hw::Entry *e = hw::entry(f);
        e->name = name;
        (note(*e, extra), ...);
        hw::entries().push_back(e);
        return *this;
    }
};
using module = module_;
} // namespace pybind11
namespace py = pybind11;
namespace torch { namespace python {} namespace py = ::pybind11; }

#ifndef TORCH_EXTENSION_NAME
#define TORCH_EXTENSION_NAME hw_extension
#endif
#define PYBIND11_MODULE(name, m)                                                                                       \
    static void hw_bind(pybind11::module_ &);                                                                          \
    HW_API void hw_init() { pybind11::module_ hw_m; hw_bind(hw_m); }                                                   \
    static void hw_bind([[maybe_unused]] pybind11::module_ &m)

#ifdef HW_EXPORTS
HW_API void hw_init();
HW_API const char *hw_open(const HwHost *table) {
    static std::string text;
    hw::host() = table;
    if (hw::entries().empty()) hw_init();
    text = "[";
    for (auto *e : hw::entries()) {
        text += std::string(text.size() > 1 ? ", " : "") + "{\"name\": " + hw::json(e->name) + ", \"arity\": " + std::to_string(e->arity) + ", \"args\": [";
        for (size_t i = 0; i < e->names.size(); ++i)
            text += std::string(i ? ", " : "") + "[" + hw::json(e->names[i]) + (e->defaults[i].empty() ? "" : ", " + e->defaults[i]) + "]";
        text += "]}";
    }
    text += "]";
    return text.c_str();
}
HW_API int hw_call(int index, const HwValue *args, HwValue *out, int room, int *shape, char *error, int error_room) {
    try {
        hw::Result result{out, room};
        hw::entries().at((size_t)index)->call(args, result);
        *shape = result.shape;
        return result.count;
    } catch (const std::exception &e) {
        snprintf(error, (size_t)error_room, "%s", e.what());
    } catch (...) {
        snprintf(error, (size_t)error_room, "an exception that is not a std::exception");
    }
    return -1;
}
#endif
