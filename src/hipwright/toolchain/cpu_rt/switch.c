// The context switch: callee-saved registers on the old stack, the new stack's back. void hw_switch(save, to).
#if defined(__x86_64__)
__asm__(".text\n.hidden hw_switch\n.globl hw_switch\n.type hw_switch,@function\nhw_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size hw_switch, .-hw_switch\n");
// words of a fresh frame, which of them is the return address, and words above it for the stack's alignment
enum { HW_FRAME = 7, HW_RETURN = 6, HW_ABOVE = 1 };
#elif defined(__aarch64__)
__asm__(".text\n.hidden hw_switch\n.globl hw_switch\n.type hw_switch,%function\nhw_switch:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp, #0]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\nstp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\n"
        "stp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp, #0]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\nldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\n"
        "ldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n"
        ".size hw_switch, .-hw_switch\n");
enum { HW_FRAME = 20, HW_RETURN = 11, HW_ABOVE = 0 };
#else
#error "the cpu target knows x86-64 and aarch64"
#endif
