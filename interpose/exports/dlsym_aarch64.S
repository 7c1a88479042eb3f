/* Our dlsym for aarch64: see dlsym_x86_64.S. */
    .text
    .globl  dlsym
    .type   dlsym, %function
    .p2align 4
dlsym:
    .cfi_startproc
    hint    #34 /* bti c */
    mov     x2, x30
    stp     x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset 29, -32
    .cfi_offset 30, -24
    stp     x0, x1, [sp, #16]
    bl      lookup_dlsym
    ldp     x29, x30, [sp]
    cbz     x1, 1f
    mov     x16, x1
    ldp     x0, x1, [sp, #16]
    add     sp, sp, #32
    .cfi_remember_state
    .cfi_def_cfa_offset 0
    .cfi_restore 29
    .cfi_restore 30
    br      x16
1:  .cfi_restore_state
    add     sp, sp, #32
    .cfi_def_cfa_offset 0
    .cfi_restore 29
    .cfi_restore 30
    ret
    .cfi_endproc
    .size   dlsym, . - dlsym
    .section .note.GNU-stack, "", %progbits
/* It keeps to branch target identification (GNU_PROPERTY_AARCH64_FEATURE_1_AND). */
    .section .note.gnu.property, "a"
    .p2align 3
    .long   4, 16, 5
    .asciz  "GNU"
    .long   0xc0000000, 4, 1, 0
