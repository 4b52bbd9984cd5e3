# What is done, with COUNT files; the outcome must not depend on when and where.
cat > walk.pl <<'END'
use strict; use warnings; use File::Find; use File::Temp 'tempdir'; use File::Copy; use Cwd; use Fcntl ':flock';
for my $n (1 .. $ENV{COUNT}) { mkdir "d" . $n % 9; open(my $f, '>', "d" . $n % 9 . "/f$n") or die $!;
  print $f "perl $n\n"; close $f; }
my $t = tempdir(DIR => '.', CLEANUP => 1); copy("d1/f1", "$t/x") or die $!; move("$t/x", "moved") or die $!;
symlink "moved", "link" or die $!; link "moved", "hard" or die $!; chmod 0640, "moved"; utime 0, 0, "moved";
my ($count, $bytes) = (0, 0); find({wanted => sub { if (-f) { $count++; $bytes += -s _; } }, no_chdir => 1}, 'd0' .. 'd8');
print "$count $bytes\n";
find(sub { unlink if /7$/ }, 'd0' .. 'd8'); print join(',', sort map { s/.*f//r } glob 'd1/*'), "\n";
printf "%o %d %s\n", (stat 'moved')[2], (stat 'moved')[3], readlink 'link';
print -e "absent" ? "there" : "absent: $!", "\n";
open(my $l, '+<', 'moved') or die $!; flock($l, LOCK_EX) or die $!; truncate $l, 3; close $l; print -s 'moved', "\n";
chdir 'd2'; print getcwd() =~ s/.*\///r, "\n"; print `cat f2`; rename 'f2', '../f2' or die $!;
print -d '..' ? 1 : 0, "\n";
END
perl walk.pl
