// Python's own methods and functions of tensors, by name. A slim unit defines the lists itself, with what it uses.
#pragma once
#ifndef HW_METHODS
#define HW_METHODS \
    HW_METHOD(view) HW_METHOD(reshape) HW_METHOD(permute) HW_METHOD(transpose) HW_METHOD(t) HW_METHOD(expand) \
    HW_METHOD(repeat) HW_METHOD(clone) HW_METHOD(copy_) HW_METHOD(zero_) HW_METHOD(fill_) HW_METHOD(add_) \
    HW_METHOD(sub_) HW_METHOD(mul_) HW_METHOD(div_) HW_METHOD(clamp_) HW_METHOD(relu_) HW_METHOD(sigmoid_) \
    HW_METHOD(tanh_) HW_METHOD(resize_) HW_METHOD(index_put_) HW_METHOD(scatter_) HW_METHOD(add) HW_METHOD(sub) \
    HW_METHOD(mul) HW_METHOD(div) HW_METHOD(matmul) HW_METHOD(mm) HW_METHOD(bmm) HW_METHOD(dot) HW_METHOD(sum) \
    HW_METHOD(mean) HW_METHOD(var) HW_METHOD(amax) HW_METHOD(amin) HW_METHOD(argmax) HW_METHOD(argmin) \
    HW_METHOD(prod) HW_METHOD(exp) HW_METHOD(log) HW_METHOD(sqrt) HW_METHOD(rsqrt) HW_METHOD(abs) HW_METHOD(neg) \
    HW_METHOD(pow) HW_METHOD(clamp) HW_METHOD(relu) HW_METHOD(sigmoid) HW_METHOD(tanh) HW_METHOD(softmax) \
    HW_METHOD(unsqueeze) HW_METHOD(squeeze) HW_METHOD(flatten) HW_METHOD(narrow) HW_METHOD(select) HW_METHOD(slice) \
    HW_METHOD(index_select) HW_METHOD(gather) HW_METHOD(cumsum) HW_METHOD(flip) HW_METHOD(type_as) \
    HW_METHOD(expand_as) HW_METHOD(view_as) HW_METHOD(reshape_as) HW_METHOD(masked_fill) HW_METHOD(new_empty) \
    HW_METHOD(new_zeros) HW_METHOD(max) HW_METHOD(min) HW_METHOD(norm) HW_METHOD(unfold) HW_METHOD(diagonal) \
    HW_METHOD(eq) HW_METHOD(ne) HW_METHOD(lt) HW_METHOD(le) HW_METHOD(gt) HW_METHOD(ge) HW_METHOD(any) \
    HW_METHOD(all) HW_METHOD(floor) HW_METHOD(cpu) HW_METHOD(cuda) HW_METHOD(half) HW_METHOD(bfloat16) \
    HW_METHOD(set_) HW_METHOD(as_strided) HW_METHOD(requires_grad_)
#endif
#ifndef HW_FUNCTIONS
#define HW_FUNCTIONS \
    HW_FUNCTION(matmul) HW_FUNCTION(mm) HW_FUNCTION(bmm) HW_FUNCTION(addmm) HW_FUNCTION(baddbmm) HW_FUNCTION(mv) \
    HW_FUNCTION(dot) HW_FUNCTION(add) HW_FUNCTION(sub) HW_FUNCTION(mul) HW_FUNCTION(div) HW_FUNCTION(sum) \
    HW_FUNCTION(mean) HW_FUNCTION(var) HW_FUNCTION(softmax) HW_FUNCTION(log_softmax) HW_FUNCTION(relu) \
    HW_FUNCTION(sigmoid) HW_FUNCTION(tanh) HW_FUNCTION(exp) HW_FUNCTION(log) HW_FUNCTION(sqrt) HW_FUNCTION(rsqrt) \
    HW_FUNCTION(abs) HW_FUNCTION(neg) HW_FUNCTION(pow) HW_FUNCTION(clamp) HW_FUNCTION(linear) HW_FUNCTION(conv1d) \
    HW_FUNCTION(conv2d) HW_FUNCTION(conv3d) HW_FUNCTION(gelu) HW_FUNCTION(silu) HW_FUNCTION(layer_norm) \
    HW_FUNCTION(transpose) HW_FUNCTION(where) HW_FUNCTION(maximum) HW_FUNCTION(minimum) HW_FUNCTION(argmax) \
    HW_FUNCTION(argmin) HW_FUNCTION(cumsum) HW_FUNCTION(flatten) HW_FUNCTION(squeeze) HW_FUNCTION(unsqueeze) \
    HW_FUNCTION(norm) HW_FUNCTION(sin) HW_FUNCTION(cos) HW_FUNCTION(erf) HW_FUNCTION(floor) HW_FUNCTION(ceil) \
    HW_FUNCTION(round) HW_FUNCTION(prod) HW_FUNCTION(logsumexp) HW_FUNCTION(tril) HW_FUNCTION(triu) \
    HW_FUNCTION(flip) HW_FUNCTION(index_select) HW_FUNCTION(conv_transpose1d) HW_FUNCTION(conv_transpose2d) \
    HW_FUNCTION(conv_transpose3d) HW_FUNCTION(max_pool2d) HW_FUNCTION(avg_pool2d)
#endif
