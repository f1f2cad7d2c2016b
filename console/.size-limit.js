// The budgets: what is fetched before the sign-in page stands, what the overview adds with all that it shows by itself, and what one
// page adds. Which files belong together is read from the build itself: an entry and all that it imports statically.
import { readFileSync } from 'node:fs';

const SIGN_IN_MAX = '70 kB';
const FIRST_LOAD_MAX = '190 kB';
const LAZY_CHUNK_MAX = '260 kB';
/** What the overview fetches by itself. The detailed map is not of it: that is for who comes nearer. */
const OVERVIEW = [
  'src/pages/Shell.svelte',
  'src/pages/Overview.svelte',
  'src/pages/overview/Places.svelte',
  'node_modules/world-atlas/countries-110m.json',
];

const manifest = JSON.parse(readFileSync('dist/.vite/manifest.json', 'utf8'));

/** The files of these entries. */
function filesOf(keys) {
  const files = new Set();
  const take = (key) => {
    const chunk = manifest[key];
    if (!chunk) throw new Error(`${key} is no part of the build`);
    if (files.has(chunk.file)) return;
    files.add(chunk.file);
    for (const file of chunk.css ?? []) files.add(file);
    for (const imported of chunk.imports ?? []) take(imported);
  };
  for (const key of keys) take(key);
  return files;
}

const chunks = Object.values(manifest).map(({ file }) => file);
const styles = chunks.filter((file) => file.endsWith('.css'));
const atStart = ['index.html', 'first.css', 'theme.js', 'icon.svg', ...styles];
const signIn = filesOf(['index.html']);
const overview = filesOf(['index.html', ...OVERVIEW.map(keyOf)]);
const lazy = chunks.filter((file) => file.endsWith('.js') && !signIn.has(file));

/** Packages stand in a folder that may be elsewhere. */
function keyOf(source) {
  return Object.keys(manifest).find((key) => key.endsWith(source)) ?? source;
}

const placed = (files) => [...new Set([...atStart, ...files])].map((file) => `dist/${file}`);
export default [
  { name: 'sign-in', path: placed(signIn), limit: SIGN_IN_MAX },
  { name: 'first load: sign-in and overview with its map', path: placed(overview), limit: FIRST_LOAD_MAX },
  ...lazy.map((file) => ({
    name: `lazy: ${file.replace(/.*\/|-[\w-]{8}\.js$/g, '')}`,
    path: `dist/${file}`,
    limit: LAZY_CHUNK_MAX,
  })),
];
