cat > p.pl <<'END'
open(F, ">", "f"); print F "perl\n"; close F;
print `cat f`;
opendir(D, "."); print join(",", sort grep { !/^\./ } readdir D), "\n";
my $pid = fork(); if (!$pid) { exit 3 } waitpid($pid, 0); print $? >> 8, "\n";
END
perl p.pl
