/* image.c: of any file, a script is what a step by step reading of its first line says, and a loader what a plain reading of its headers says. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image.h"

enum { LINE = 256, HEADERS = 64, DYNAMIC = 512 };

const char *const fuzz_words[] = {"#!", "\n", " \t", "/bin/sh", "#!/usr/bin/env -S sh\n", "\x7f" "ELF\x02\x01\x01", "\x03\x00\x00\x00", "\x02\x00\x00\x00", "\x0e\x00\x00\x00\x00\x00\x00\x00", NULL};

static int file = -1;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    file = memfd_create("image", MFD_CLOEXEC);
    return file < 0;
}

/* A loader: a header, one or two program headers, two entries. */
static size_t seed_elf(uint8_t *to, int interpreter) {
    Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT}, .e_type = ET_DYN, .e_machine = EM_X86_64,
                         .e_phoff = sizeof header, .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = (Elf64_Half)(1 + interpreter)};
    Elf64_Phdr programs[2] = {{.p_type = PT_DYNAMIC, .p_offset = sizeof header + sizeof programs, .p_filesz = 2 * sizeof(Elf64_Dyn)}, {.p_type = PT_INTERP}};
    Elf64_Dyn entries[2] = {{.d_tag = DT_SONAME}, {.d_tag = DT_NULL}};
    memcpy(to, &header, sizeof header);
    memcpy(to + sizeof header, programs, sizeof programs);
    memcpy(to + sizeof header + sizeof programs, entries, sizeof entries);
    return sizeof header + sizeof programs + sizeof entries;
}

size_t fuzz_seed(unsigned index, uint8_t *to, size_t room) {
    static const char *const texts[] = {"#!/bin/sh\n", "#! \t/usr/bin/env -S  sh -e \t\nexit\n", "#!/bin/true", "#!x \0y\n"};
    if (room < 1024) return 0;
    if (index < 4) {
        const size_t n = index == 3 ? 8 : strlen(texts[index]);
        memcpy(to, texts[index], n);
        return n;
    }
    return index < 6 ? seed_elf(to, (int)index - 4) : 0;
}

static int blank(char c) { return c == ' ' || c == '\t'; }

/* As the kernel goes about it (load_script): the end of the line first, then the name from its beginning, then the argument. False: ENOEXEC or another format. */
static int model_script(const char *text, char *name, char *argument) {
    size_t end = 0, at = 2, n = 0;
    if (text[0] != '#' || text[1] != '!') return 0;
    while (end < LINE && text[end] != '\n' && text[end] != '\0') end++;
    if (end == LINE || text[end] != '\n') { /* no newline: the name must end before the buffer does */
        size_t start = 2;
        while (start < LINE && blank(text[start])) start++;
        size_t stop = start;
        while (stop < LINE && !blank(text[stop]) && text[stop] != '\0') stop++;
        if (stop >= LINE) return 0;
        end = LINE - 1;
    }
    while (end > 2 && blank(text[end - 1])) end--;
    while (at < end && blank(text[at])) at++;
    while (at < end && !blank(text[at]) && text[at] != '\0') name[n++] = text[at++];
    name[n] = '\0';
    if (n == 0) return 0;
    while (at < end && blank(text[at])) at++;
    for (n = 0; at < end && text[at] != '\0'; at++) argument[n++] = text[at];
    argument[n] = '\0';
    return 1;
}

static int model_loader(const uint8_t *data, size_t size) {
    Elf64_Ehdr header;
    int named = 0, dynamic = -1;
    if (size < sizeof header) return 0;
    memcpy(&header, data, sizeof header);
    if (memcmp(data, "\x7f" "ELF\x02", 5) != 0 || header.e_type != ET_DYN || header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > HEADERS) return 0;
    if (header.e_phoff > size || header.e_phnum * sizeof(Elf64_Phdr) > size - header.e_phoff) return 0;
    Elf64_Phdr program;
    for (int i = 0; i < header.e_phnum; i++) {
        memcpy(&program, data + header.e_phoff + (size_t)i * sizeof program, sizeof program);
        if (program.p_type == PT_INTERP) return 0;
        if (program.p_type == PT_DYNAMIC) dynamic = i;
    }
    if (dynamic < 0) return 0;
    memcpy(&program, data + header.e_phoff + (size_t)dynamic * sizeof program, sizeof program);
    for (uint64_t i = 0; i < DYNAMIC && (i + 1) * sizeof(Elf64_Dyn) <= program.p_filesz && program.p_offset < size; i++) {
        Elf64_Dyn entry;
        if ((i + 1) * sizeof entry > size - program.p_offset) break;
        memcpy(&entry, data + program.p_offset + i * sizeof entry, sizeof entry);
        if (entry.d_tag == DT_NULL) break;
        named |= entry.d_tag == DT_SONAME;
    }
    return named;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char line[LINE + 1] = "", name[LINE + 1], argument[LINE + 1];
    struct cg_shebang shebang;
    memset(&shebang, 'x', sizeof shebang);
    if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size) return 0;
    memcpy(line, data, size < LINE ? size : LINE);
    const enum cg_image_kind kind = cg_image_kind_of(file, &shebang);
    const int script = model_script(line, name, argument);
    FUZZ_CHECK((kind == CG_IMAGE_SCRIPT) == script, "kind is %d, the model says %d", (int)kind, script);
    if (script) {
        FUZZ_CHECK(strcmp(shebang.interpreter, name) == 0, "the interpreter is \"%s\", not \"%s\"", shebang.interpreter, name);
        FUZZ_CHECK(strcmp(shebang.argument, argument) == 0, "the argument is \"%s\", not \"%s\"", shebang.argument, argument);
    } else FUZZ_CHECK((kind == CG_IMAGE_LOADER) == model_loader(data, size), "kind is %d, the model says %d", (int)kind, model_loader(data, size));
    return 0;
}
