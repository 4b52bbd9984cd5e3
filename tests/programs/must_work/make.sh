cat > Makefile <<'END'
all: a b c
a b c: ; echo making $@ > $@
clean: ; rm -f a b c
.PHONY: all clean
END
make -s -j4
cat a b c
make -s clean
ls
