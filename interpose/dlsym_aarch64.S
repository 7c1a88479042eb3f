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
    b.ne    1f
    ldrb    w9, [x1, #2]
    sub     w9, w9, #'A'
    cmp     w9, #25
    b.hi    1f
    cmn     x0, #1
    b.eq    1f
    mov     x2, x30
    b       lookup_dlsym
1:  adrp    x16, real_dlsym
    ldr     x16, [x16, #:lo12:real_dlsym]
    cbz     x16, 2f
    br      x16
2:  stp     x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    stp     x0, x1, [sp, #16]
    bl      real_dlsym_find
    mov     x16, x0
    ldp     x0, x1, [sp, #16]
    ldp     x29, x30, [sp], #32
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    cbz     x16, 3f
    br      x16
3:  mov     x0, #0
    ret
    .cfi_endproc
    .size   dlsym, . - dlsym
    .section .note.GNU-stack, "", %progbits
