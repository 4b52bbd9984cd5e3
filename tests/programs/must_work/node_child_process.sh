cat > child.js <<'SCRIPT'
process.on('message', (n) => { process.send(n * n); if (n === 3) process.disconnect(); });
SCRIPT
cat > n.js <<'SCRIPT'
const cp = require('child_process');
const ended = (child) => new Promise((resolve) => child.on('close', (code, signal) => resolve([code, signal])));
(async () => {
  console.log(cp.spawnSync('sh', ['-c', 'cat; exit 4'], { input: 'in' }).stdout.toString(), cp.spawnSync('false').status);
  const child = cp.fork('./child.js');
  const answers = [];
  child.on('message', (n) => answers.push(n));
  for (const n of [1, 2, 3]) child.send(n);
  console.log(await ended(child), answers.join());
  const slow = cp.spawn('sleep', ['60']);
  slow.kill('SIGTERM');
  console.log(await ended(slow));
  const timed = cp.spawnSync('sleep', ['60'], { timeout: 100 });
  console.log(timed.error.code, timed.signal);
  console.log(cp.spawnSync('no-such-program').error.code);
  const many = await Promise.all([...Array(20).keys()].map((n) => ended(cp.spawn('sh', ['-c', `exit ${n}`]))));
  console.log(many.map(([code]) => code).join());
  const group = cp.spawn('sh', ['-c', 'sleep 60 & sleep 60'], { detached: true, stdio: 'ignore' });
  process.kill(-group.pid, 'SIGKILL');
  console.log(await ended(group));
})();
SCRIPT
node n.js
