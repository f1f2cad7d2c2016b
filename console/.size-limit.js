// The budgets: what is fetched before the sign-in page and the overview stand, and what one page adds. Which files belong to the
// first load is read from the build itself: the entry and all that it imports statically.
import { readFileSync } from 'node:fs';

const FIRST_LOAD_MAX = '190 kB';
const LAZY_CHUNK_MAX = '260 kB';

const manifest = JSON.parse(readFileSync('dist/.vite/manifest.json', 'utf8'));
const first = new Set();
function take(key) {
  const chunk = manifest[key];
  if (first.has(chunk.file)) return;
  first.add(chunk.file);
  for (const file of chunk.css ?? []) first.add(file);
  for (const imported of chunk.imports ?? []) take(imported);
}
take('index.html');

const styles = Object.values(manifest)
  .map(({ file }) => file)
  .filter((file) => file.endsWith('.css'));
const lazy = Object.values(manifest).filter(({ file }) => file.endsWith('.js') && !first.has(file));
export default [
  {
    name: 'first load: sign-in and overview',
    path: [...new Set(['index.html', 'theme.js', ...first, ...styles])].map((file) => `dist/${file}`),
    limit: FIRST_LOAD_MAX,
  },
  ...lazy.map(({ file }) => ({
    name: `lazy: ${file.replace(/.*\/|-[\w-]{8}\.js$/g, '')}`,
    path: `dist/${file}`,
    limit: LAZY_CHUNK_MAX,
  })),
];
