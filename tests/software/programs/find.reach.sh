# The same program goes for what is denied.
find /home/agentos/vault
find /home /opt /tmp -name key -path '*vault*' -exec cat {} +
find /home/agentos/vault -delete
find /home -type f
