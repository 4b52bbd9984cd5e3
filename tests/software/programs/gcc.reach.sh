# The same program goes for what is denied.
echo '#include "/home/agentos/vault/header.h"' > x.c
echo 'TEXT' >> x.c
gcc -E x.c
gcc -E -include /home/agentos/vault/key -x c /dev/null
gcc -o /home/agentos/vault/out -x c /dev/null
printf 'include /home/agentos/vault/key\n' | make -f -
