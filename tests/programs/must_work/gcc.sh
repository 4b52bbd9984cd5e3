cat > m.c <<'END'
#include <stdio.h>
#include "x.h"
int main(void) { printf("%d\n", X); return 0; }
END
echo '#define X 42' > x.h
gcc -O1 -Wall -o m m.c
./m
gcc -c m.c -o m.o
ar rc libm.a m.o
ar t libm.a
gcc -static -o s m.c
./s
gcc -MM m.c
