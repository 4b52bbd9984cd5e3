/* What a program file is: a script and its interpreter, a dynamic loader, or anything else. */
#define _GNU_SOURCE
#include "image.h"

#include <elf.h>
#include <string.h>
#include <unistd.h>

#define HEAD 1024          /* the ELF header and, in any usual program, all program headers */
#define HEADERS_MAX 64
#define DYNAMIC_MAX 512    /* entries looked at; a loader has about thirty */

static bool blank(char c) { return c == ' ' || c == '\t'; }

/* "#! interpreter [argument]" as load_script of fs/binfmt_script.c reads it: one argument, with the blanks inside it kept; those before a newline are dropped.
 * A name that the buffer may have cut off is none: the kernel answers ENOEXEC. */
static bool read_shebang(const char *head, size_t n, struct cg_shebang *out) {
    char line[CG_IMAGE_LINE + 1] = "";
    if (n < 2 || head[0] != '#' || head[1] != '!') return false;
    memcpy(line, head, n < CG_IMAGE_LINE ? n : CG_IMAGE_LINE);
    char *const newline = strchr(line, '\n'), *end = newline ? newline : line + CG_IMAGE_LINE - 1;
    char *at = line + 2;
    if (!newline && (at += strspn(at, " \t"), at + strcspn(at, " \t") > end)) return false;
    while (end > at && blank(end[-1])) end--;
    *end = '\0';
    at += strspn(at, " \t");
    const size_t length = strcspn(at, " \t");
    if (length == 0) return false;
    memcpy(out->interpreter, at, length);
    out->interpreter[length] = '\0';
    at += length;
    at += strspn(at, " \t");
    memcpy(out->argument, at, strlen(at) + 1);
    return true;
}

static bool has_name(int fd, const Elf64_Phdr *dynamic) {
    Elf64_Dyn entries[DYNAMIC_MAX];
    const size_t size = dynamic->p_filesz < sizeof entries ? dynamic->p_filesz : sizeof entries;
    const ssize_t n = pread(fd, entries, size, (off_t)dynamic->p_offset);
    for (size_t i = 0; n > 0 && i < (size_t)n / sizeof *entries && entries[i].d_tag != DT_NULL; i++)
        if (entries[i].d_tag == DT_SONAME) return true;
    return false;
}

/* A library has a name for others to link with (DT_SONAME), a position independent program has none; a library that names no interpreter and is executed
 * is one: ld-linux-x86-64.so.2, ld-musl-x86_64.so.1. */
static bool is_loader(int fd, const char *head, size_t n) {
    Elf64_Ehdr header;
    Elf64_Phdr programs[HEADERS_MAX];
    if (n < sizeof header) return false;
    memcpy(&header, head, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN) return false;
    if (header.e_phentsize != sizeof *programs || header.e_phnum > HEADERS_MAX) return false;
    const size_t size = header.e_phnum * sizeof *programs;
    if (header.e_phoff <= n && size <= n - header.e_phoff) memcpy(programs, head + header.e_phoff, size);
    else if (pread(fd, programs, size, (off_t)header.e_phoff) != (ssize_t)size) return false;
    const Elf64_Phdr *dynamic = NULL;
    for (size_t i = 0; i < header.e_phnum; i++) {
        if (programs[i].p_type == PT_INTERP) return false;
        if (programs[i].p_type == PT_DYNAMIC) dynamic = &programs[i];
    }
    return dynamic && has_name(fd, dynamic);
}

enum cg_image_kind cg_image_kind_of(int fd, struct cg_shebang *shebang) {
    char head[HEAD];
    const ssize_t n = pread(fd, head, sizeof head, 0);
    if (n <= 0) return CG_IMAGE_OTHER;
    if (read_shebang(head, (size_t)n, shebang)) return CG_IMAGE_SCRIPT;
    return is_loader(fd, head, (size_t)n) ? CG_IMAGE_LOADER : CG_IMAGE_OTHER;
}
