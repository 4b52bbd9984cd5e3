# What is done, with COUNT files; the outcome must not depend on when and where.
printf 'one\ntwo\nthree\n' > f; export HOME=$PWD
run() { vim -es -N -u NONE -i NONE --cmd 'set directory=. backupdir=. backupskip= viminfo=' "$@" < /dev/null; }
run -c 'redir! > named' -c 'silent swapname' -c 'redir END' -c '%s/two/2/' -c 'w' -c q f; cat f; cat named; echo;
ls -A
run -c 'set backup' -c '$d' -c 'wq' f; cat f f~; run -c 'r !echo from a shell' -c 'saveas g' -c q f; cat g
{ run -c 'normal Ochanged' -c preserve \
  -c 'call writefile(["alive"], "mark")' -c 'exe "silent !kill -9 " . getpid()' f || echo killed; } 2>&1
ls -A; run -r f -c 'w! recovered' -c 'q!' || true; cat recovered; rm -f .f.swp
run -c 'set undofile undodir=.' -c 'normal dd' -c 'wq' g; ls -A; cat g
