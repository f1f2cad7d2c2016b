// Makes the built console ready to be embedded: each file once as it is, once with brotli and once with gzip where that is smaller,
// and a list of them (`dist/files.tsv`: path, content type, hash of the content) that `crates/console/build.rs` reads.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const FOLDER = fileURLToPath(new URL('../dist', import.meta.url));
/** What a page is made of; anything else in the folder is a mistake. */
const TYPES = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.webmanifest': 'application/manifest+json',
};
const GZIP_LEVEL = 9;

const files = readdirSync(FOLDER, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath, entry.name).slice(FOLDER.length + 1))
  .filter((path) => !path.startsWith('.'))
  .sort();
const lines = [];
for (const path of files) {
  const place = join(FOLDER, path);
  if (path === 'files.tsv' || path.endsWith('.br') || path.endsWith('.gz')) {
    rmSync(place);
    continue;
  }
  const type = TYPES[extname(path)];
  if (!type) throw new Error(`${path}: no content type is known for this file`);
  const content = readFileSync(place);
  const brotli = brotliCompressSync(content, {
    params: {
      [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
      [constants.BROTLI_PARAM_SIZE_HINT]: content.length,
    },
  });
  const gzip = gzipSync(content, { level: GZIP_LEVEL });
  if (brotli.length < content.length) writeFileSync(`${place}.br`, brotli);
  if (gzip.length < content.length) writeFileSync(`${place}.gz`, gzip);
  lines.push([path, type, createHash('sha256').update(content).digest('hex').slice(0, 32)].join('\t'));
}
writeFileSync(join(FOLDER, 'files.tsv'), `${lines.join('\n')}\n`);
