/* Our dlopen and dlmopen for aarch64: see load_x86_64.S. */
    .text
    .macro  entry name, in_namespace
    .globl  \name
    .type   \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint    #34 /* bti c */
    stp     x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset 29, -48
    .cfi_offset 30, -40
    stp     x0, x1, [sp, #16]
    str     x2, [sp, #32]
    .if \in_namespace
    mov     x2, x1
    .else
    mov     x2, x0
    .endif
    mov     w0, #\in_namespace
    add     x1, sp, #48
    bl      load_begins
    mov     x16, x0
    ldr     x2, [sp, #32]
    ldp     x0, x1, [sp, #16]
    ldp     x29, x30, [sp], #48
    .cfi_def_cfa_offset 0
    .cfi_restore 29
    .cfi_restore 30
    br      x16
    .cfi_endproc
    .size   \name, . - \name
    .endm
    entry   dlopen, 0
    entry   dlmopen, 1
    .section .note.GNU-stack, "", %progbits
/* They keep to branch target identification (GNU_PROPERTY_AARCH64_FEATURE_1_AND). */
    .section .note.gnu.property, "a"
    .p2align 3
    .long   4, 16, 5
    .asciz  "GNU"
    .long   0xc0000000, 4, 1, 0
