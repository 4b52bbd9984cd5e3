/* The program files of an exec, read from the file itself: what the kernel would make of them. */
#ifndef CG_IMAGE_H
#define CG_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

#define CG_IMAGE_LINE 256 /* BINPRM_BUF_SIZE: all that the kernel looks at for "#!" */

struct cg_shebang { char interpreter[CG_IMAGE_LINE]; char argument[CG_IMAGE_LINE]; /* "" for none */ };

enum cg_image_kind { CG_IMAGE_OTHER,  /* a program, or what the kernel will refuse */
                     CG_IMAGE_SCRIPT, /* `shebang` is filled */
                     CG_IMAGE_LOADER };  /* a shared library that runs without an interpreter of its own: it loads and runs whatever it is given */

/* Of a file opened for reading. */
enum cg_image_kind cg_image_kind_of(int fd, struct cg_shebang *shebang);

#endif
