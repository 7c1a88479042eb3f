/* Our dlopen and dlmopen: note the load, then tail-jump to the real function, which looks at the return address. */
    .text
    .macro  entry name, in_namespace
    .globl  \name
    .type   \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    pushq   %rdx
    .cfi_adjust_cfa_offset 8
    .if \in_namespace
    movq    %rsi, %rdx
    .else
    movq    %rdi, %rdx
    .endif
    movl    $\in_namespace, %edi
    leaq    32(%rsp), %rsi
    call    load_begins
    popq    %rdx
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    jmp     *%rax
    .cfi_endproc
    .size   \name, . - \name
    .endm
    entry   dlopen, 0
    entry   dlmopen, 1
    .section .note.GNU-stack, "", @progbits
/* They keep to indirect branch tracking and shadow stacks (GNU_PROPERTY_X86_FEATURE_1_AND). */
    .section .note.gnu.property, "a"
    .p2align 3
    .long   4, 16, 5
    .asciz  "GNU"
    .long   0xc0000002, 4, 3, 0
