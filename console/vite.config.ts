import { paraglideVitePlugin } from '@inlang/paraglide-js';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { type Plugin, defineConfig } from 'vite';

// `light-dark()` is written out as it stands: these are the first versions that know it.
const BROWSERS = ['chrome123', 'edge123', 'firefox121', 'safari17.5'];

/** A server to develop against. */
const SERVER = process.env.ISOBAR_URL ?? 'http://127.0.0.1:8080';

/** The styles of the console hold up its pages, and not what the page itself shows before them. */
const stylesLast: Plugin = {
  name: 'styles-last',
  transformIndexHtml: {
    order: 'post',
    handler: (html) => {
      const link = /\n\s*<link rel="stylesheet" crossorigin [^>]*>/.exec(html)?.[0] ?? '';
      return html.replace(link, '').replace(/\n\s*<\/body>/, (end) => link + end);
    },
  },
};

export default defineConfig({
  plugins: [
    paraglideVitePlugin({
      project: './project.inlang',
      outdir: './src/paraglide',
      strategy: ['localStorage', 'preferredLanguage', 'baseLocale'],
      emitTsDeclarations: true,
    }),
    svelte(),
    stylesLast,
  ],
  // The client, which tsconfig.json finds.
  resolve: { tsconfigPaths: true },
  build: {
    target: BROWSERS,
    cssTarget: BROWSERS,
    // One style sheet, and no preloading: a page that is never opened is never fetched.
    cssCodeSplit: false,
    modulePreload: false,
    // A picture within a style would be a `data:` address, which the content security policy would have to allow.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    // For .size-limit.js.
    manifest: true,
    // For `scripts/console licences`.
    license: process.env.CONSOLE_LICENCES === 'yes',
  },
  // Not `SERVER` alone: that would put the server's host into `Host`, and the page's origin would be a foreign one.
  server: { proxy: Object.fromEntries(['/v2', '/health', '/metrics'].map((path) => [path, { target: SERVER }])) },
});
