cat > n.js <<'END'
const fs = require('fs'), cp = require('child_process');
fs.writeFileSync('f', 'node');
console.log(fs.readFileSync('f', 'utf8'), cp.execSync('echo child').toString().trim());
fs.promises.readdir('.').then(names => console.log(names.sort().join()))
  .then(() => new Promise(resolve => setTimeout(resolve, 5))).then(() => console.log('later'));
END
node n.js
