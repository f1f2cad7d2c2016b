// Installs the packed client in an empty folder, offline, and runs the first example of its README there.
// PACKED names the packed file, PACKAGES the folder with the packages that it needs, ISOBAR the server.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ADMIN, startServer } from '../built/server.js';

const { PACKED: packed, PACKAGES: packages } = process.env;
/** A program whose types hold, and where they must not. */
const TYPED = `import { Isobar, type components } from 'isobar-client';
const isobar = new Isobar({ baseUrl: 'http://localhost' });
export const name = async (device: components['schemas']['Device']): Promise<string> => {
  const path = { id: device.id };
  // @ts-expect-error there is no such member
  void (await isobar.get('/v2/devices/{id}', { params: { path } })).nothing;
  // @ts-expect-error there is no such path
  void isobar.get('/v2/nothing');
  // @ts-expect-error this one is no list
  void isobar.list('/v2/devices/summary');
  return (await isobar.get('/v2/devices/{id}', { params: { path } })).name;
};
`;

test('packed client runs the first example of its README', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'isobar-packed-'));
  const server = await startServer();
  try {
    const run = (program, words, environment = {}) =>
      execFileSync(program, words, { cwd: folder, encoding: 'utf8', env: { ...process.env, ...environment } });
    writeFileSync(join(folder, 'package.json'), '{"private":true}');
    const dependencies = ['openapi-fetch', 'openapi-typescript-helpers'].map((name) => join(packages, name));
    run('npm', [
      'install',
      '--offline',
      '--install-links',
      '--no-audit',
      '--no-fund',
      '--loglevel=error',
      packed,
      ...dependencies,
    ]);
    const installed = join(folder, 'node_modules', 'isobar-client');
    for (const name of ['dist/index.js', 'dist/schema.d.ts', 'src/client.ts', 'README.md'])
      assert.ok(existsSync(join(installed, name)), name);
    for (const name of readdirSync(join(installed, 'dist')).filter((name) => name.endsWith('.js'))) {
      assert.doesNotMatch(
        readFileSync(join(installed, 'dist', name), 'utf8'),
        /node:|require\(/,
        `${name} is for Node alone`,
      );
    }
    const example = readFileSync(join(installed, 'README.md'), 'utf8').match(/```js\n([^]*?)```/)[1];
    writeFileSync(join(folder, 'first.mjs'), example);
    writeFileSync(join(folder, 'typed.mts'), TYPED);
    const strict = [
      '--strict',
      '--noEmit',
      '--target',
      'es2022',
      '--module',
      'nodenext',
      '--lib',
      'es2023,dom,dom.iterable',
    ];
    const tsc = join(packages, 'typescript/bin/tsc');
    run(process.execPath, [tsc, ...strict, 'typed.mts']);
    writeFileSync(join(folder, 'typed.cts'), TYPED);
    run(process.execPath, [tsc, ...strict, 'typed.cts']);
    writeFileSync(join(folder, 'typed.ts'), TYPED);
    const old = strict.map((word) => (word === 'nodenext' ? 'commonjs' : word));
    run(process.execPath, [tsc, ...old, '--moduleResolution', 'node10', 'typed.ts']);
    const required = `const { Isobar } = require('isobar-client');
      new Isobar({ baseUrl: process.env.ISOBAR_URL }).get('/v2/about').then((about) => console.log(about.name));`;
    writeFileSync(join(folder, 'required.cjs'), required);
    assert.match(run('node', ['required.cjs'], { ISOBAR_URL: server.url }), /Isobar/);
    const said = run('node', ['first.mjs'], { ISOBAR_URL: server.url, ISOBAR_PASSWORD: ADMIN.password });
    assert.match(said, /\{ temp: 9\.1 \}\n.*\{ temp: 4\.2 \}\n$/);
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
