# What is done, with COUNT files; the outcome must not depend on when and where.
cat > walk.js <<'END'
const fs = require('fs'), path = require('path'), cp = require('child_process'), os = require('os');
const count = Number(process.env.COUNT);
(async () => {
  for (let n = 0; n < 9; n++) fs.mkdirSync(`d/${n}`, {recursive: true});
  await Promise.all(Array.from({length: count}, (_, n) => fs.promises.writeFile(`d/${n % 9}/f${n}`, `node ${n}\n`)));
  const names = fs.readdirSync('d', {recursive: true}).sort();
  console.log(names.length, names.slice(0, 4).join());
  fs.cpSync('d', 'copy', {recursive: true}); fs.rmSync('d/3', {recursive: true}); fs.renameSync('d/4', 'moved');
  fs.symlinkSync('moved', 'link'); fs.linkSync('copy/1/f1', 'hard'); fs.chmodSync('hard', 0o640);
  fs.truncateSync('hard', 3);
  console.log(fs.statSync('copy/1/f1').mode.toString(8), fs.statSync('hard').nlink, fs.readlinkSync('link'),
    fs.realpathSync('link').endsWith('moved'));
  console.log(fs.existsSync('absent'), (() => { try { fs.readFileSync('absent'); } catch (e) { return e.code; } })());
  const watcher = fs.watch('copy');
  const seen = new Promise(r => watcher.once('change', (kind, name) => r([kind, name])));
  fs.writeFileSync('copy/new', 'x'); console.log(await seen); watcher.close();
  const file = await fs.promises.open('stream', 'w+'); await file.appendFile('appended');
  console.log((await file.stat()).size); await file.close();
  console.log(cp.execFileSync('sh', ['-c', 'cat copy/2/f2; ls moved | wc -l']).toString().trim());
})();
END
node walk.js
