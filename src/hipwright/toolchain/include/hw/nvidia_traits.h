// NVRTC: the type traits that clang has built in and our headers use.
#pragma once

template <class HwT> struct hw_plain {
    typedef HwT type;
};
template <class HwT> struct hw_plain<const HwT> : hw_plain<HwT> {};
template <class HwT> struct hw_plain<volatile HwT> : hw_plain<HwT> {};
template <class HwT> struct hw_plain<const volatile HwT> : hw_plain<HwT> {};
template <class HwA, class HwB> struct hw_same_type {
    static constexpr bool value = false;
};
template <class HwT> struct hw_same_type<HwT, HwT> {
    static constexpr bool value = true;
};
template <class HwT> struct hw_kind { // of a type without const and volatile
    static constexpr bool integral = false, floating = false;
};
#define HW_KIND(HwT, INTEGRAL, FLOATING)                                                                               \
    template <> struct hw_kind<HwT> {                                                                                  \
        static constexpr bool integral = INTEGRAL, floating = FLOATING;                                                \
    };
HW_KIND(bool, true, false)
HW_KIND(char, true, false)
HW_KIND(signed char, true, false)
HW_KIND(unsigned char, true, false)
HW_KIND(short, true, false)
HW_KIND(unsigned short, true, false)
HW_KIND(int, true, false)
HW_KIND(unsigned, true, false)
HW_KIND(long, true, false)
HW_KIND(unsigned long, true, false)
HW_KIND(long long, true, false)
HW_KIND(unsigned long long, true, false)
HW_KIND(wchar_t, true, false)
HW_KIND(char16_t, true, false)
HW_KIND(char32_t, true, false)
HW_KIND(float, false, true)
HW_KIND(double, false, true)
#undef HW_KIND
template <class HwT, bool arithmetic> struct hw_sign {
    static constexpr bool negative = false;
};
template <class HwT> struct hw_sign<HwT, true> {
    static constexpr bool negative = HwT(-1) < HwT(0);
};
template <class HwT> struct hw_traits {
    typedef typename hw_plain<HwT>::type plain;
    static constexpr bool integral = hw_kind<plain>::integral, floating = hw_kind<plain>::floating;
    static constexpr bool arithmetic = integral || floating, negative = hw_sign<plain, arithmetic>::negative;
    static constexpr bool nothing = hw_same_type<plain, void>::value;
};
template <class HwT> struct hw_is_const {
    static constexpr bool value = false;
};
template <class HwT> struct hw_is_const<const HwT> {
    static constexpr bool value = true;
};
template <class HwT> struct hw_is_pointer {
    static constexpr bool value = false;
};
template <class HwT> struct hw_is_pointer<HwT *> {
    static constexpr bool value = true;
};
#define __is_same(...) (hw_same_type<__VA_ARGS__>::value)
#define __is_integral(...) (hw_traits<__VA_ARGS__>::integral)
#define __is_floating_point(...) (hw_traits<__VA_ARGS__>::floating)
#define __is_arithmetic(...) (hw_traits<__VA_ARGS__>::arithmetic)
#define __is_signed(...) (hw_traits<__VA_ARGS__>::negative)
#define __is_unsigned(...) (hw_traits<__VA_ARGS__>::arithmetic && !hw_traits<__VA_ARGS__>::negative)
#define __is_void(...) (hw_traits<__VA_ARGS__>::nothing)
#define __is_const(...) (hw_is_const<__VA_ARGS__>::value)
#define __is_pointer(...) (hw_is_pointer<typename hw_plain<__VA_ARGS__>::type>::value)
#define __is_convertible(...) __is_convertible_to(__VA_ARGS__)

template <class HwT> struct hw_no_reference {
    typedef HwT type;
};
template <class HwT> struct hw_no_reference<HwT &> {
    typedef HwT type;
};
template <class HwT> struct hw_no_reference<HwT &&> {
    typedef HwT type;
};
template <class HwT> struct hw_no_const {
    typedef HwT type;
};
template <class HwT> struct hw_no_const<const HwT> {
    typedef HwT type;
};
template <class HwT, class HwPlain> struct hw_pointee {
    typedef HwT type;
};
template <class HwT, class HwTo> struct hw_pointee<HwT, HwTo *> {
    typedef HwTo type;
};
template <class HwT> struct hw_decayed { // as an argument passed by value
    typedef typename hw_plain<HwT>::type type;
};
template <class HwT> struct hw_decayed<HwT &> : hw_decayed<HwT> {};
template <class HwT> struct hw_decayed<HwT &&> : hw_decayed<HwT> {};
template <class HwT, unsigned long n> struct hw_decayed<HwT[n]> {
    typedef HwT *type;
};
template <class HwT> struct hw_decayed<HwT[]> {
    typedef HwT *type;
};
template <class HwR, class... HwA> struct hw_decayed<HwR(HwA...)> {
    typedef HwR (*type)(HwA...);
};
template <class HwT> struct hw_integers {
    typedef HwT with_sign, without_sign;
};
#define HW_INTEGERS(SIGNED, UNSIGNED)                                                                                  \
    template <> struct hw_integers<SIGNED> {                                                                           \
        typedef SIGNED with_sign;                                                                                      \
        typedef UNSIGNED without_sign;                                                                                 \
    };                                                                                                                 \
    template <> struct hw_integers<UNSIGNED> : hw_integers<SIGNED> {};
HW_INTEGERS(signed char, unsigned char)
HW_INTEGERS(short, unsigned short)
HW_INTEGERS(int, unsigned)
HW_INTEGERS(long, unsigned long)
HW_INTEGERS(long long, unsigned long long)
#undef HW_INTEGERS
template <> struct hw_integers<char> : hw_integers<signed char> {};
#define __remove_reference_t(...) typename hw_no_reference<__VA_ARGS__>::type
#define __remove_cv(...) typename hw_plain<__VA_ARGS__>::type
#define __remove_const(...) typename hw_no_const<__VA_ARGS__>::type
#define __remove_pointer(...) typename hw_pointee<__VA_ARGS__, typename hw_plain<__VA_ARGS__>::type>::type
#define __decay(...) typename hw_decayed<__VA_ARGS__>::type
#define __make_unsigned(...) typename hw_integers<__VA_ARGS__>::without_sign
#define __make_signed(...) typename hw_integers<__VA_ARGS__>::with_sign

// 0 ... n - 1 by doubling
template <unsigned long... hw_i> struct hw_indices {
    template <template <class HwE, HwE...> class HwS, class HwT> using as = HwS<HwT, (HwT)hw_i...>;
    typedef hw_indices<hw_i..., sizeof...(hw_i) + hw_i...> twice;
    typedef hw_indices<hw_i..., sizeof...(hw_i) + hw_i..., 2 * sizeof...(hw_i)> twice_and_one;
};
template <unsigned long n, bool odd = n % 2> struct hw_count;
template <> struct hw_count<0, false> {
    typedef hw_indices<> type;
};
template <unsigned long n> struct hw_count<n, false> {
    typedef typename hw_count<n / 2>::type::twice type;
};
template <unsigned long n> struct hw_count<n, true> {
    typedef typename hw_count<n / 2>::type::twice_and_one type;
};
template <template <class HwE, HwE...> class HwS, class HwT, HwT n>
using hw_make_integer_seq = typename hw_count<(unsigned long)n>::type::template as<HwS, HwT>;
#define __make_integer_seq hw_make_integer_seq // newer versions have one themselves
