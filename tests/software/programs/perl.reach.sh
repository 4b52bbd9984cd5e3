# The same program goes for what is denied.
perl -pe1 /home/agentos/vault/key
perl -e 'opendir(D, "/home/agentos/vault") or die $!; print readdir D'
perl -e 'do "/home/agentos/vault/key" or die $!'
perl -e 'rename "/home/agentos/vault/key", "k" or die $!'
