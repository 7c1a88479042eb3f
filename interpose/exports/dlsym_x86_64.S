/* Our dlsym. It tail-jumps to the real one, because RTLD_NEXT looks at the return address: a C wrapper would send other
 * interposers into endless recursion, and dlerror would name us. lookup_dlsym says what to do: return its answer,
 * or go on as well. */
    .text
    .globl  dlsym
    .type   dlsym, @function
    .p2align 4
dlsym:
    .cfi_startproc
    endbr64
    movq    (%rsp), %rdx
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    subq    $8, %rsp
    .cfi_adjust_cfa_offset 8
    call    lookup_dlsym
    addq    $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    testq   %rdx, %rdx
    jnz     1f
    ret
1:  jmp     *%rdx
    .cfi_endproc
    .size   dlsym, . - dlsym
    .section .note.GNU-stack, "", @progbits
/* It keeps to indirect branch tracking and shadow stacks (GNU_PROPERTY_X86_FEATURE_1_AND). */
    .section .note.gnu.property, "a"
    .p2align 3
    .long   4, 16, 5
    .asciz  "GNU"
    .long   0xc0000002, 4, 3, 0
