# What is done, with COUNT files; the outcome must not depend on when and where.
for n in $(seq 20); do
  printf '#include "all.h"\nint f%d(int x) { return x * %d + SCALE; }\n' $n $n > f$n.c
done
{ echo '#define SCALE 3'; for n in $(seq 20); do echo "int f$n(int);"; done; } > all.h
{ echo '#include <stdio.h>'; echo '#include "all.h"'; echo 'int main(void) { int s = 0;'
  for n in $(seq 20); do echo "s += f$n($n);"; done; printf '%s\n' 'printf("%d\n", s); return 0; }'; } > main.c
cat > Makefile <<'END'
OBJECTS := main.o $(patsubst %,f%.o,$(shell seq 20))
program: libf.a main.o
	gcc -o $@ main.o -L. -lf
libf.a: $(filter-out main.o,$(OBJECTS))
	ar rcD $@ $^
%.o: %.c all.h
	gcc -Wall -O1 -MMD -c -o $@ $<
-include $(OBJECTS:.o=.d)
END
touch -d '-1 hour' *.c *.h Makefile; make -j2 | sort; ./program; make; sleep 0.05; touch f7.c; make | sort; ./program
gcc -shared -fPIC -o libs.so f1.c f2.c; nm -D libs.so | grep ' T f' | cut -c 17-; gcc -E main.c | grep -c f20
