# The same program goes for what is denied.
node -e 'console.log(fs.readFileSync("/home/agentos/vault/key", "utf8"))'
node -e 'console.log(fs.readdirSync("/home/agentos/vault"))'
node /home/agentos/vault/key
node -e 'fs.cpSync("/home/agentos/vault", "c", {recursive: true})'
node -e 'fs.watch("/home/agentos/vault")'
