// AT_DISPATCH_*: one branch a dtype.
#pragma once
#define HW_CASE(type, cpp, ...)                                                                                        \
    case c10::ScalarType::type: {                                                                                      \
        using scalar_t [[maybe_unused]] = cpp;                                                                         \
        return __VA_ARGS__();                                                                                          \
    }
#define HW_CASE_OF(enumerator, ...)                                                                                    \
    case enumerator: {                                                                                                 \
        using scalar_t [[maybe_unused]] = typename hw::TypeOf<enumerator>::type;                                       \
        return __VA_ARGS__();                                                                                          \
    }
#define HW_SWITCH(type, name, ...)                                                                                     \
    [&] {                                                                                                              \
        const c10::ScalarType hw_type = hw::as_scalar_type(type);                                                      \
        switch (hw_type) {                                                                                             \
            __VA_ARGS__                                                                                                \
        default: hw::fail(hw::words("\"", name, "\" not implemented for '", hw_type, "'"));       \
        }                                                                                                              \
    }()
#define HW_FLOATS(...) HW_CASE(Double, double, __VA_ARGS__) HW_CASE(Float, float, __VA_ARGS__)
#define HW_INTS(...)                                                                                                   \
    HW_CASE(Byte, uint8_t, __VA_ARGS__) HW_CASE(Char, int8_t, __VA_ARGS__) HW_CASE(Int, int32_t, __VA_ARGS__)          \
    HW_CASE(Long, int64_t, __VA_ARGS__) HW_CASE(Short, int16_t, __VA_ARGS__)
#define AT_DISPATCH_SWITCH(type, name, ...) HW_SWITCH(type, name, __VA_ARGS__)
#define AT_DISPATCH_CASE(enumerator, ...) HW_CASE_OF(enumerator, __VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(type, name, ...) HW_SWITCH(type, name, HW_FLOATS(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(type, name, ...)                                                           \
    HW_SWITCH(type, name, HW_FLOATS(__VA_ARGS__) HW_CASE(Half, c10::Half, __VA_ARGS__))
#define AT_DISPATCH_REDUCED_FLOATING_TYPES(type, name, ...)                                                            \
    HW_SWITCH(type, name, HW_CASE(Half, c10::Half, __VA_ARGS__) HW_CASE(BFloat16, c10::BFloat16, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(a, type, name, ...) HW_SWITCH(type, name, HW_FLOATS(__VA_ARGS__) HW_CASE_OF(a, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(a, b, type, name, ...)                                                         \
    HW_SWITCH(type, name, HW_FLOATS(__VA_ARGS__) HW_CASE_OF(a, __VA_ARGS__) HW_CASE_OF(b, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(type, name, ...) HW_SWITCH(type, name, HW_INTS(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(type, name, ...) HW_SWITCH(type, name, HW_FLOATS(__VA_ARGS__) HW_INTS(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(a, type, name, ...)                                                                  \
    HW_SWITCH(type, name, HW_FLOATS(__VA_ARGS__) HW_INTS(__VA_ARGS__) HW_CASE_OF(a, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(a, b, type, name, ...)                                                              \
    HW_SWITCH(type, name, HW_FLOATS(__VA_ARGS__) HW_INTS(__VA_ARGS__) HW_CASE_OF(a, __VA_ARGS__) HW_CASE_OF(b, __VA_ARGS__))

namespace hw {
inline c10::ScalarType as_scalar_type(c10::ScalarType t) { return t; }
inline c10::ScalarType as_scalar_type(const at::Tensor &t) { return t.scalar_type(); }
template <c10::ScalarType> struct TypeOf;
#define HW_TYPE(e, t) template <> struct TypeOf<c10::ScalarType::e> { using type = t; };
HW_TYPE(Byte, uint8_t) HW_TYPE(Char, int8_t) HW_TYPE(Short, int16_t) HW_TYPE(Int, int32_t) HW_TYPE(Long, int64_t)
HW_TYPE(Half, c10::Half) HW_TYPE(Float, float) HW_TYPE(Double, double) HW_TYPE(Bool, bool) HW_TYPE(BFloat16, c10::BFloat16)
#undef HW_TYPE
} // namespace hw
