mkdir -p sub
cat > Makefile <<'MAKE'
parts := $(addprefix part,$(shell seq 40))
all: $(parts) inner
	cat $(parts) | sort -n | tail -n 1
part%: ; @sleep 0.01; echo $* > $@
inner: ; +@$(MAKE) -s -C sub
.PHONY: all inner
MAKE
cat > sub/Makefile <<'MAKE'
outs := $(addsuffix .out,$(shell seq 20))
all: $(outs) ; @ls *.out | wc -l
%.out: ; @(echo $* ; test -n "$$MAKEFLAGS") > $@
MAKE
make -s -j8
make -s -j8 part41 no-such-target 2>&1 | grep -c 'No rule' || true
