/* Our dlsym. It tail-jumps to the real one, because RTLD_NEXT looks at the return address: a C wrapper would send other
 * interposers into endless recursion, and dlerror would name us. Only of names that begin with cu does lookup_dlsym
 * say what to do: return its answer, or go on as well. */
    .text
    .globl  dlsym
    .type   dlsym, @function
    .p2align 4
dlsym:
    .cfi_startproc
    endbr64
    testq   %rsi, %rsi
    jz      1f
    cmpb    $'c', (%rsi)
    jne     1f
    cmpb    $'u', 1(%rsi)
    je      2f
1:  movq    real_dlsym(%rip), %rdx
    testq   %rdx, %rdx
    jnz     3f
2:  movq    (%rsp), %rdx
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
    jnz     3f
    ret
3:  jmp     *%rdx
    .cfi_endproc
    .size   dlsym, . - dlsym
    .section .note.GNU-stack, "", @progbits
