/* Our dlsym for aarch64: see dlsym_x86_64.S. */
    .text
    .globl  dlsym
    .type   dlsym, %function
    .p2align 4
dlsym:
    .cfi_startproc
    hint    #34 /* bti c */
    cbz     x1, 1f
    ldrb    w9, [x1]
    cmp     w9, #'c'
    b.ne    1f
    ldrb    w9, [x1, #1]
    cmp     w9, #'u'
    b.eq    2f
1:  adrp    x16, real_dlsym
    ldr     x16, [x16, #:lo12:real_dlsym]
    cbnz    x16, 3f
2:  mov     x2, x30
    stp     x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    stp     x0, x1, [sp, #16]
    bl      lookup_dlsym
    ldp     x29, x30, [sp]
    cbz     x1, 4f
    mov     x16, x1
    ldp     x0, x1, [sp, #16]
    add     sp, sp, #32
    .cfi_remember_state
    .cfi_def_cfa_offset 0
    .cfi_restore 29
    .cfi_restore 30
3:  br      x16
4:  .cfi_restore_state
    add     sp, sp, #32
    .cfi_def_cfa_offset 0
    .cfi_restore 29
    .cfi_restore 30
    ret
    .cfi_endproc
    .size   dlsym, . - dlsym
    .section .note.GNU-stack, "", %progbits
