/* Our dlsym. It tail-jumps to the real one, because RTLD_NEXT looks at the return address: a C wrapper would send other
 * interposers into endless recursion. Only names that match cu[A-Z] go to lookup_dlsym; with RTLD_NEXT even those
 * do not, since then another interposer asks for what comes after itself. */
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
    jne     1f
    movzbl  2(%rsi), %eax
    subl    $'A', %eax
    cmpl    $25, %eax
    ja      1f
    cmpq    $-1, %rdi
    je      1f
    movq    (%rsp), %rdx
    jmp     lookup_dlsym
1:  movq    real_dlsym(%rip), %rax
    testq   %rax, %rax
    jz      2f
    jmp     *%rax
2:  pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    subq    $8, %rsp
    .cfi_adjust_cfa_offset 8
    call    real_dlsym_find
    addq    $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    testq   %rax, %rax
    jz      3f
    jmp     *%rax
3:  ret
    .cfi_endproc
    .size   dlsym, . - dlsym
    .section .note.GNU-stack, "", @progbits
